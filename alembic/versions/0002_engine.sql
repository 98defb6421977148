-- What the whole booking engine needs beside the first release: rules that differ by tenant and project, money as a limit,
-- requests that people answer, series, classes, maintenance, power, mail.

-- ---------- rules ----------
CREATE TABLE policy_overrides (                               -- laid over pools.policy; a project's over its tenant's
  tenant_id uuid NOT NULL REFERENCES tenants, id uuid NOT NULL, project_id uuid, pool_id int NOT NULL REFERENCES pools,
  words jsonb NOT NULL, PRIMARY KEY (tenant_id, id), FOREIGN KEY (tenant_id, project_id) REFERENCES projects,
  CONSTRAINT one_override UNIQUE NULLS NOT DISTINCT (tenant_id, project_id, pool_id));
ALTER TABLE scopes ADD COLUMN max_money numeric CHECK (max_money >= 0);       -- in a month, the tenant's currency
ALTER TABLE projects ADD COLUMN renewal_asked_at timestamptz;                  -- an ended project in its grace
ALTER TABLE tenants ADD COLUMN renewal_grace_seconds int NOT NULL DEFAULT 604800 CHECK (renewal_grace_seconds >= 0);

-- ---------- bookings ----------
CREATE TABLE series (                                         -- an RFC 5545 rule in local wall time; each occurrence is a booking
  tenant_id uuid NOT NULL REFERENCES tenants, id uuid NOT NULL, number bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
  project_id uuid NOT NULL, name text NOT NULL CHECK (name <> ''), rule text NOT NULL CHECK (rule <> ''), zone text NOT NULL,
  local_start timestamp NOT NULL, local_end timestamp NOT NULL CHECK (local_end > local_start), wanted jsonb NOT NULL,
  on_conflict text NOT NULL CHECK (on_conflict IN ('skip','none')), account_id uuid REFERENCES accounts, made_by text NOT NULL,
  made_at timestamptz NOT NULL, ended_at timestamptz, split_from uuid, version int NOT NULL CHECK (version > 0),
  PRIMARY KEY (tenant_id, id), FOREIGN KEY (tenant_id, project_id) REFERENCES projects,
  FOREIGN KEY (tenant_id, split_from) REFERENCES series);
CREATE TABLE classes (                                        -- one request for n people: a booking each, all or nothing
  tenant_id uuid NOT NULL REFERENCES tenants, id uuid NOT NULL, number bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
  project_id uuid NOT NULL, name text NOT NULL CHECK (name <> ''), account_id uuid REFERENCES accounts, made_by text NOT NULL,
  made_at timestamptz NOT NULL, PRIMARY KEY (tenant_id, id), FOREIGN KEY (tenant_id, project_id) REFERENCES projects);
ALTER TABLE bookings
  ADD COLUMN near text CHECK (near IN ('node','nvlink','leaf','rack')),        -- closeness that is preferred, not required
  ADD COLUMN shared boolean NOT NULL DEFAULT false,           -- every member of the project may enter it
  ADD COLUMN series_id uuid, ADD COLUMN occurs_at timestamptz, -- which occurrence of the series: its start by the rule
  ADD COLUMN class_id uuid,
  ADD FOREIGN KEY (tenant_id, series_id) REFERENCES series, ADD FOREIGN KEY (tenant_id, class_id) REFERENCES classes,
  ADD CHECK (series_id IS NULL OR occurs_at IS NOT NULL);
CREATE UNIQUE INDEX one_booking_an_occurrence ON bookings (tenant_id, series_id, occurs_at)
  WHERE series_id IS NOT NULL AND state NOT IN ('CANCELLED','REJECTED','LAPSED');
CREATE INDEX bookings_of_class ON bookings (tenant_id, class_id) WHERE class_id IS NOT NULL;
ALTER TABLE booking_prices ADD COLUMN units int CHECK (units > 0);  -- so many in this piece; null: the booking's units
ALTER TABLE holds ADD COLUMN left_at timestamptz;            -- no longer the booking's from here on; blocked until seen empty
GRANT UPDATE (left_at) ON holds TO berth_app;
CREATE INDEX holds_over ON holds (node_id, upper(during)) WHERE NOT live;  -- who was on these units before

-- ---------- requests and waiters ----------
ALTER TABLE requests
  ADD COLUMN verb text NOT NULL DEFAULT 'book' CHECK (verb IN ('book','extend','move','offer')),
  ADD COLUMN approver text CHECK (approver IN ('lead','operator')),
  ADD COLUMN asked_at timestamptz, ADD COLUMN account_id uuid REFERENCES accounts, ADD COLUMN asked_by text NOT NULL DEFAULT '',
  ADD COLUMN answered_at timestamptz, ADD COLUMN answered_by text, ADD COLUMN why text NOT NULL DEFAULT '',
  ADD CHECK ((waits_for = 'approval') = (approver IS NOT NULL));
CREATE UNIQUE INDEX one_open_request ON requests (booking_id) WHERE outcome IS NULL AND waits_for <> 'waiter';
CREATE INDEX requests_of_booking ON requests (booking_id);
CREATE INDEX requests_open ON requests (tenant_id, expires_at) WHERE outcome IS NULL;
ALTER TABLE waiting ADD COLUMN auto boolean NOT NULL DEFAULT false;            -- book at once instead of offering

-- ---------- maintenance and power: platform tables ----------
CREATE TABLE maintenances (
  id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, cluster_id int NOT NULL REFERENCES clusters, name text NOT NULL CHECK (name <> ''),
  why text NOT NULL, during tstzrange NOT NULL CHECK (good_window(during)), layout jsonb,  -- layout: GPUs cut anew at its end
  made_by text NOT NULL, made_at timestamptz NOT NULL, cancelled_at timestamptz, version int NOT NULL CHECK (version > 0));
CREATE TABLE maintenance_nodes (
  maintenance_id int NOT NULL REFERENCES maintenances, node_id int NOT NULL REFERENCES nodes, PRIMARY KEY (maintenance_id, node_id));
CREATE INDEX maintenance_of_node ON maintenance_nodes (node_id);
CREATE TABLE power_budgets (                                  -- what one rack (leaf, cluster) may draw
  id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, cluster_id int NOT NULL REFERENCES clusters,
  level text NOT NULL CHECK (level IN ('rack','leaf','cluster')), name text NOT NULL, watts int NOT NULL CHECK (watts > 0),
  CONSTRAINT one_budget UNIQUE (cluster_id, level, name));
ALTER TABLE kinds DROP CONSTRAINT kinds_slug_check,             -- slices are called like their profile: h100-sxm-80gb-3g.40gb
  ADD CONSTRAINT kinds_slug_check CHECK (slug ~ '^[a-z0-9][a-z0-9.+-]*$' AND slug <> 'any');
ALTER TABLE external_use ADD COLUMN cpu_milli int, ADD COLUMN memory_mib int;  -- what it takes of the node beside units
ALTER TABLE external_use ADD COLUMN who text;                 -- the cluster's word for whose it is: claimed by that person

-- ---------- notices ----------
ALTER TABLE outbox ADD COLUMN key text;                       -- the same thing is told once: booking, kind, which instant
CREATE UNIQUE INDEX one_notice ON outbox (tenant_id, account_id, key) NULLS NOT DISTINCT WHERE key IS NOT NULL;
CREATE INDEX notices_of ON outbox (tenant_id, account_id, at DESC, id DESC);
CREATE INDEX notices_unread ON outbox (tenant_id, account_id) WHERE read_at IS NULL;
CREATE TABLE mail (                                           -- notices that become a mail; platform: opaque ids. Wall clock.
  notice_id uuid PRIMARY KEY, tenant_id uuid NOT NULL, next_at timestamptz NOT NULL, tries int NOT NULL CHECK (tries >= 0),
  lease_token uuid, leased_until timestamptz, last_error text, CHECK (num_nonnulls(lease_token, leased_until) IN (0, 2)));
CREATE INDEX mail_next ON mail (next_at);

DO $$ DECLARE t text; BEGIN
  FOREACH t IN ARRAY ARRAY['policy_overrides','series','classes'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY own ON %I TO berth_app USING (tenant_id = berth_tenant())
                    WITH CHECK (tenant_id = berth_tenant())', t);
    EXECUTE format('CREATE POLICY everyone ON %I FOR SELECT TO berth_reader USING (true)', t);
  END LOOP;
END $$;
GRANT SELECT ON policy_overrides, series, classes, maintenances, maintenance_nodes, power_budgets, mail TO berth_app, berth_reader;
GRANT INSERT, UPDATE ON policy_overrides, series, classes, maintenances, maintenance_nodes, power_budgets, mail TO berth_app;
GRANT DELETE ON policy_overrides, maintenance_nodes, power_budgets, mail, slots TO berth_app;  -- slots: a layout called off
GRANT UPDATE (starts_at, ends_at, per_hour, price_id, units) ON booking_prices TO berth_app;  -- a booking that moves or shrinks
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO berth_app;
