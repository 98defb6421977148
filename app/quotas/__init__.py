"""How much a tenant, a project or a person may take: units at once and unit-hours a month, held from the booking on."""
