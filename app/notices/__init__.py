"""What people are told: the list on the page, what is read, and the mail that some notices become."""
