-- The data model of the first release. Roles berth_owner, berth_app and berth_reader exist before (plumbing.embedded,
-- `berth admin roles`); this runs as the owner. Reasons for each constraint: docs/decisions/0001 and 0004.

-- ---------- time: one row; the product clock; frozen wins over shift ----------
CREATE TABLE clock (
  one boolean PRIMARY KEY CHECK (one),
  movable boolean NOT NULL,
  shift interval NOT NULL, frozen timestamptz,
  CHECK (movable OR (shift = interval '0' AND frozen IS NULL)));
INSERT INTO clock VALUES (true, false, interval '0', NULL);
-- VOLATILE on purpose: each call reads the row and the clock anew. Call it alone, after locks are taken.
CREATE FUNCTION berth_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS
  'SELECT date_trunc(''second'', coalesce(frozen, clock_timestamp() + shift)) FROM clock';

-- ---------- whose: '' is what a transaction-local setting leaves behind in a pooled connection ----------
CREATE FUNCTION berth_tenant() RETURNS uuid LANGUAGE sql STABLE AS
  $$SELECT nullif(current_setting('app.tenant', true), '')::uuid$$;
CREATE FUNCTION berth_account() RETURNS uuid LANGUAGE sql STABLE AS
  $$SELECT nullif(current_setting('app.account', true), '')::uuid$$;
-- Half-open, finite, whole seconds: a tstzrange by itself also admits '[10:00,12:00]', infinity and microseconds.
CREATE FUNCTION good_window(w tstzrange) RETURNS boolean LANGUAGE sql IMMUTABLE AS
  $$SELECT NOT isempty(w) AND lower_inc(w) AND NOT upper_inc(w) AND isfinite(lower(w)) AND isfinite(upper(w))
       AND extract(microseconds FROM lower(w))::int % 1000000 = 0 AND extract(microseconds FROM upper(w))::int % 1000000 = 0$$;

-- ---------- platform tables: no tenant's names, no row-level security ----------
CREATE TABLE installation (
  one boolean PRIMARY KEY CHECK (one), id text NOT NULL CHECK (id ~ '^[0-9a-z]{6,12}$'), created_at timestamptz NOT NULL);

CREATE TABLE accounts (                                       -- an account is (issuer, subject), never an e-mail address
  id uuid PRIMARY KEY, issuer text NOT NULL, subject text NOT NULL, name text NOT NULL CHECK (name <> ''),
  email text NOT NULL, password_hash text, zone text NOT NULL, disabled boolean NOT NULL,
  created_at timestamptz NOT NULL, CONSTRAINT one_account_a_subject UNIQUE (issuer, subject));
CREATE TABLE sessions (
  id_hash bytea PRIMARY KEY, account_id uuid NOT NULL REFERENCES accounts, created_at timestamptz NOT NULL,
  seen_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, revoked_at timestamptz, csrf text NOT NULL,
  tenant_id uuid, project_id uuid, agent text NOT NULL, address text NOT NULL, id_token text);
CREATE INDEX sessions_of_account ON sessions (account_id);
CREATE TABLE sign_in_tries (                                  -- lock-out after repeated failures; key is a hash of login or address
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key bytea NOT NULL, at timestamptz NOT NULL);
CREATE INDEX sign_in_tries_of_key ON sign_in_tries (key, at);
CREATE TABLE tokens (
  id uuid PRIMARY KEY, secret_hash bytea NOT NULL UNIQUE, account_id uuid NOT NULL REFERENCES accounts,
  tenant_id uuid, project_id uuid, label text NOT NULL, scopes text[] NOT NULL, created_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL, used_at timestamptz, revoked_at timestamptz);
CREATE INDEX tokens_of_account ON tokens (account_id);
CREATE TABLE platform_roles (
  account_id uuid NOT NULL REFERENCES accounts, role text NOT NULL CHECK (role IN ('operator','finance','auditor')),
  source text NOT NULL CHECK (source IN ('local','oidc')), PRIMARY KEY (account_id, role));
CREATE TABLE platform_audit (                                 -- append-only
  seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL, product_at timestamptz NOT NULL,
  account_id uuid, actor text NOT NULL, action text NOT NULL, subject text NOT NULL, tenant_id uuid,
  before jsonb, after jsonb, why text);

CREATE TABLE kinds (                                          -- the accelerator catalogue
  slug text PRIMARY KEY CHECK (slug ~ '^[a-z0-9][a-z0-9-]*$' AND slug <> 'any'), name text NOT NULL, vendor text NOT NULL,
  memory_gb numeric CHECK (memory_gb > 0), tdp_watts int CHECK (tdp_watts > 0),   -- null: not known (a trace's models)
  node_kw numeric, units_per_node int NOT NULL CHECK (units_per_node > 0), facts jsonb NOT NULL);
CREATE TABLE clusters (
  id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9.-]*$'),
  backend text NOT NULL, config jsonb NOT NULL, secret bytea, writes boolean NOT NULL, probe jsonb,
  probed_at timestamptz, synced_at timestamptz, failures int NOT NULL CHECK (failures >= 0),
  retry_at timestamptz,                                       -- next look, on the product clock; null: at once
  lease_token uuid, leased_until timestamptz,                 -- of the worker that is looking, on the wall clock
  last_error text, billed boolean NOT NULL, CHECK (num_nonnulls(lease_token, leased_until) IN (0, 2)));
CREATE TABLE pools (
  id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, cluster_id int NOT NULL REFERENCES clusters, name text NOT NULL,
  kind text NOT NULL REFERENCES kinds, gap_seconds int NOT NULL CHECK (gap_seconds >= 0), policy jsonb NOT NULL,
  version bigint NOT NULL,                                    -- raised by every change of holds or capacity
  capacity_version bigint NOT NULL,                           -- a new one with every change of nodes and units: key of caches
  CONSTRAINT one_name_a_cluster UNIQUE (cluster_id, name)) WITH (fillfactor = 50);
CREATE SEQUENCE capacity_versions AS bigint;                 -- never given twice, not even after a rollback
CREATE SEQUENCE gpu_numbers AS int MINVALUE 0 START 0 MAXVALUE 33000000;
CREATE TABLE nodes (
  id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, cluster_id int NOT NULL REFERENCES clusters, pool_id int NOT NULL REFERENCES pools,
  name text NOT NULL CHECK (name <> ''), first_gpu int NOT NULL CHECK (first_gpu >= 0), gpus int NOT NULL CHECK (gpus > 0),
  rack text, leaf text, nvlink text, power_watts int, cpu_milli int, memory_mib int,
  state text NOT NULL CHECK (state IN ('ready','drained','down','unknown')), why text, observed_at timestamptz,
  removed_at timestamptz, CONSTRAINT one_node_a_cluster UNIQUE (cluster_id, name));
CREATE INDEX nodes_of_pool ON nodes (pool_id);
-- A GPU owns positions [64g, 64g+64); a slice 8 x its placement; successive layouts are successive rows.
CREATE TABLE slots (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, node_id int NOT NULL REFERENCES nodes, gpu int NOT NULL CHECK (gpu >= 0),
  positions int4range NOT NULL, valid tstzrange NOT NULL CHECK (NOT isempty(valid) AND lower_inc(valid)),
  kind text NOT NULL REFERENCES kinds, share840 int NOT NULL CHECK (share840 BETWEEN 1 AND 840),
  CHECK (lower(positions) / 64 = gpu AND (upper(positions) - 1) / 64 = gpu),
  CHECK (lower(positions) % 8 = 0 AND upper(positions) % 8 = 0),
  CONSTRAINT one_layout_at_a_time EXCLUDE USING gist (positions WITH &&, valid WITH &&) DEFERRABLE);
CREATE INDEX slots_of_node ON slots (node_id);
CREATE TABLE devices (                                        -- which card sat in a slot, and when
  slot_id bigint NOT NULL REFERENCES slots, uuid text NOT NULL, serial text, since timestamptz NOT NULL, until timestamptz,
  PRIMARY KEY (slot_id, since), CHECK (until IS NULL OR until > since));
CREATE TABLE unit_faults (                                    -- a unit that is not capacity; open while `until` is null
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, node_id int NOT NULL REFERENCES nodes, gpu int NOT NULL,
  since timestamptz NOT NULL, until timestamptz, why text NOT NULL, CHECK (until IS NULL OR until >= since));
CREATE UNIQUE INDEX one_open_fault_a_unit ON unit_faults (gpu) WHERE until IS NULL;
CREATE TABLE node_outages (                                   -- a node that was not capacity; open while `until` is null
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, node_id int NOT NULL REFERENCES nodes,
  state text NOT NULL CHECK (state IN ('drained','down','unknown')), since timestamptz NOT NULL, until timestamptz,
  why text, CHECK (until IS NULL OR until >= since));
CREATE UNIQUE INDEX one_open_outage_a_node ON node_outages (node_id) WHERE until IS NULL;
CREATE TABLE external_use (                                   -- use not made by Berth: capacity taken; open while upper is null
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, node_id int NOT NULL REFERENCES nodes, units int4multirange NOT NULL,
  since timestamptz NOT NULL, until timestamptz, seen_at timestamptz NOT NULL, ended_at timestamptz, what text NOT NULL);
CREATE INDEX external_use_now ON external_use (node_id) WHERE ended_at IS NULL;

CREATE TABLE price_versions (                                 -- immutable once published: the app may only insert
  id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, price_group text NOT NULL, currency text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  effective_at timestamptz NOT NULL, published_at timestamptz NOT NULL, published_by text NOT NULL, note text NOT NULL,
  CONSTRAINT one_version_an_instant UNIQUE (price_group, currency, effective_at, published_at));
CREATE TABLE prices (
  id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, version_id int NOT NULL REFERENCES price_versions, kind text NOT NULL REFERENCES kinds,
  per_hour numeric NOT NULL CHECK (per_hour >= 0 AND scale(per_hour) <= 6),     -- NUMERIC(p,s) would round in silence
  CONSTRAINT one_price_a_version UNIQUE (version_id, kind));

-- What may exist on a cluster. No tenant: `strays` must know every name. `gone` = known and final.
CREATE TABLE allocations (
  id uuid PRIMARY KEY, cluster_id int NOT NULL REFERENCES clusters, installation text NOT NULL,
  generation int NOT NULL CHECK (generation > 0), name text NOT NULL UNIQUE, gone boolean NOT NULL,
  wanted int NOT NULL CHECK (wanted > 0),                     -- version of what should be there; raised by every change
  ensured int NOT NULL CHECK (ensured >= 0),                  -- version last brought to the cluster
  seen text CHECK (seen IN ('absent','preparing','ready','degraded','blocked','ending','gone')), seen_at timestamptz,
  in_place_since timestamptz, empty_since timestamptz, sampled_until timestamptz, failures int NOT NULL CHECK (failures >= 0),
  last_error text, CHECK (ensured <= wanted));
CREATE INDEX allocations_of_cluster ON allocations (cluster_id) WHERE NOT gone;

-- ---------- tenant tables: tenant_id first in every key, so a foreign key cannot cross tenants ----------
CREATE TABLE tenants (tenant_id uuid PRIMARY KEY, slug text NOT NULL UNIQUE, name text NOT NULL CHECK (name <> ''), zone text NOT NULL,
  currency text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'), price_group text NOT NULL, created_at timestamptz NOT NULL);
CREATE TABLE projects (tenant_id uuid NOT NULL REFERENCES tenants, id uuid NOT NULL, slug text NOT NULL CHECK (slug ~ '^[a-z0-9][a-z0-9-]*$'),
  name text NOT NULL CHECK (name <> ''), cost_centre text NOT NULL, created_at timestamptz NOT NULL, ended_at timestamptz,
  PRIMARY KEY (tenant_id, id), CONSTRAINT one_slug_a_tenant UNIQUE (tenant_id, slug));
CREATE TABLE memberships (
  tenant_id uuid NOT NULL REFERENCES tenants, account_id uuid NOT NULL REFERENCES accounts, project_id uuid, role text NOT NULL,
  source text NOT NULL CHECK (source IN ('local','oidc')),
  FOREIGN KEY (tenant_id, project_id) REFERENCES projects,
  CHECK (CASE WHEN project_id IS NULL THEN role IN ('admin','finance','auditor') ELSE role IN ('viewer','member','lead') END),
  CONSTRAINT one_membership UNIQUE NULLS NOT DISTINCT (tenant_id, account_id, project_id, role));
CREATE INDEX memberships_of_account ON memberships (account_id);
CREATE TABLE audit (                                          -- append-only
  tenant_id uuid NOT NULL REFERENCES tenants, seq bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL, product_at timestamptz NOT NULL,
  account_id uuid, actor text NOT NULL, action text NOT NULL, subject text NOT NULL, before jsonb, after jsonb, why text,
  PRIMARY KEY (tenant_id, seq));

CREATE TABLE bookings (
  id uuid PRIMARY KEY, tenant_id uuid NOT NULL, project_id uuid NOT NULL, number bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
  name text NOT NULL CHECK (name <> ''), cost_centre text NOT NULL, reference text NOT NULL,
  state text NOT NULL CHECK (state IN ('WAITING','REQUESTED','BOOKED','STARTING','ACTIVE','ENDING',
                                       'ENDED','CANCELLED','REJECTED','LAPSED')),
  outcome text CHECK (outcome IN ('completed','released','cancelled','no_show','failed','not_provided')),
  kind text NOT NULL REFERENCES kinds, cluster_id int NOT NULL REFERENCES clusters, pool_id int NOT NULL REFERENCES pools,
  units int NOT NULL CHECK (units > 0), nodes int CHECK (nodes > 0), per_node int CHECK (per_node > 0),
  within text CHECK (within IN ('node','nvlink','leaf','rack')), share840 int NOT NULL CHECK (share840 BETWEEN 1 AND 840),
  starts_at timestamptz NOT NULL, ends_at timestamptz NOT NULL, provided_at timestamptz,
  released_at timestamptz, left_by text,                      -- from when nothing is charged, and by which event it was left
  emptied_at timestamptz, asked boolean NOT NULL,             -- asked: the cluster was, or may have been, asked for it
  currency text NOT NULL, quoted numeric NOT NULL, zone text NOT NULL,           -- zone of billing days, fixed at booking
  account_id uuid REFERENCES accounts, booked_by text NOT NULL, booked_at timestamptz NOT NULL, workload jsonb,
  first_used_at timestamptz, metered_until timestamptz, version int NOT NULL CHECK (version > 0),
  UNIQUE (tenant_id, id), FOREIGN KEY (tenant_id, project_id) REFERENCES projects,
  CHECK (good_window(tstzrange(starts_at, ends_at))),
  CHECK ((nodes IS NULL) = (per_node IS NULL) AND (nodes IS NULL OR units = nodes * per_node)),
  CHECK ((state = 'ENDED') = (outcome IS NOT NULL)),
  CHECK (provided_at IS NULL OR (provided_at >= starts_at AND provided_at < ends_at)),
  CHECK (outcome <> 'not_provided' OR provided_at IS NULL));  -- never provided, never charged
CREATE INDEX bookings_by_end ON bookings (tenant_id, ends_at);
CREATE INDEX bookings_by_number ON bookings (tenant_id, number);
CREATE INDEX bookings_by_project ON bookings (tenant_id, project_id, starts_at);
CREATE TABLE booking_prices (                                 -- the schedule frozen at confirmation, cut where the price changes
  tenant_id uuid NOT NULL, booking_id uuid NOT NULL, starts_at timestamptz NOT NULL, ends_at timestamptz NOT NULL,
  price_id int NOT NULL REFERENCES prices, per_hour numeric NOT NULL CHECK (per_hour >= 0 AND scale(per_hour) <= 6),
  PRIMARY KEY (tenant_id, booking_id, starts_at), FOREIGN KEY (tenant_id, booking_id) REFERENCES bookings (tenant_id, id),
  CHECK (good_window(tstzrange(starts_at, ends_at))));
CREATE TABLE idempotency (                                    -- rolled back with a refusal: only successes stay
  tenant_id uuid NOT NULL REFERENCES tenants, key text NOT NULL CHECK (length(key) BETWEEN 1 AND 200), verb text NOT NULL,
  body_hash bytea NOT NULL, booking_id uuid NOT NULL, at timestamptz NOT NULL, PRIMARY KEY (tenant_id, key));
-- An edit that awaits approval, freed units that await a waiter, an offer that awaits its answer.
CREATE TABLE requests (
  id uuid PRIMARY KEY, tenant_id uuid NOT NULL, booking_id uuid NOT NULL,
  waits_for text NOT NULL CHECK (waits_for IN ('approval','waiter','answer')), wanted jsonb NOT NULL,
  expires_at timestamptz NOT NULL, outcome text CHECK (outcome IN ('granted','rejected','lapsed','withdrawn')),
  UNIQUE (tenant_id, id), FOREIGN KEY (tenant_id, booking_id) REFERENCES bookings (tenant_id, id));
-- Holds: opaque owners, everybody's. One row per owner and node. `during` includes the cleaning gap.
CREATE TABLE holds (
  id uuid PRIMARY KEY, booking_id uuid REFERENCES bookings, request_id uuid REFERENCES requests,
  allocation_id uuid NOT NULL REFERENCES allocations, node_id int NOT NULL REFERENCES nodes,
  units int4multirange NOT NULL CHECK (NOT isempty(units) AND lower(units) >= 0),
  during tstzrange NOT NULL CHECK (good_window(during)), live boolean NOT NULL, pinned boolean NOT NULL,
  CHECK (num_nonnulls(booking_id, request_id) = 1),
  CONSTRAINT no_unit_twice EXCLUDE USING gist (units WITH &&, during WITH &&) WHERE (live)
    DEFERRABLE INITIALLY IMMEDIATE) WITH (fillfactor = 85);   -- room on the page: pinning touches no index
CREATE INDEX holds_of_node ON holds (node_id, upper(during)) WHERE live;
CREATE INDEX holds_of_booking ON holds (booking_id);
CREATE INDEX holds_of_request ON holds (request_id) WHERE request_id IS NOT NULL;
CREATE INDEX holds_of_allocation ON holds (allocation_id);
-- The exclusion constraint knows positions, not slots: this one refuses half a slice, a layout that will be gone, or
-- another node's unit. A hold that only shrinks always may (its slot may have been lost: at risk).
CREATE FUNCTION hold_fits_slots() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF NOT NEW.live OR (TG_OP = 'UPDATE' AND OLD.live AND OLD.node_id = NEW.node_id
                      AND OLD.units @> NEW.units AND OLD.during @> NEW.during) THEN RETURN NULL; END IF;
  IF NEW.units IS DISTINCT FROM (SELECT range_agg(s.positions) FROM slots s WHERE s.node_id = NEW.node_id
                                 AND s.positions && NEW.units AND s.valid @> NEW.during) THEN
    RAISE check_violation USING CONSTRAINT = 'hold_fits_slots', MESSAGE = 'a hold must be whole slots of its node, valid throughout';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER hold_fits_slots AFTER INSERT OR UPDATE OF node_id, units, during, live ON holds
  FOR EACH ROW EXECUTE FUNCTION hold_fits_slots();
-- The queue of waiters, a platform table: whoever gives units away must see other tenants' waiters.
CREATE TABLE waiting (booking_id uuid PRIMARY KEY REFERENCES bookings, tenant_id uuid NOT NULL,
  pool_id int NOT NULL REFERENCES pools, since timestamptz NOT NULL, skips int NOT NULL CHECK (skips >= 0),
  units int NOT NULL CHECK (units > 0), earliest timestamptz NOT NULL, latest timestamptz NOT NULL CHECK (latest > earliest));
CREATE INDEX waiting_of_pool ON waiting (pool_id, since);
-- What recolouring did to anybody's hold; drained tenant by tenant into history and notices.
CREATE TABLE hold_moves (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, hold_id uuid NOT NULL REFERENCES holds,
  at timestamptz NOT NULL, was int4multirange NOT NULL, becomes int4multirange NOT NULL);

-- What is to be metered and measured, a platform table, so that workers find it without passing any policy. A booking
-- enters when it was provided and is looked at anew whenever its end, state or release changes; usage empties it.
-- next_at, collect_at: product clock, null = nothing left to do; the lease is wall time.
CREATE TABLE metering (
  booking_id uuid PRIMARY KEY REFERENCES bookings, tenant_id uuid NOT NULL, next_at timestamptz, collect_at timestamptz,
  leased_until timestamptz, failures int NOT NULL CHECK (failures >= 0));
CREATE INDEX metering_next ON metering (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX metering_collect ON metering (collect_at) WHERE collect_at IS NOT NULL;
CREATE FUNCTION to_be_metered() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO metering VALUES (NEW.id, NEW.tenant_id, NEW.provided_at, NEW.provided_at, NULL, 0)
    ON CONFLICT (booking_id) DO UPDATE SET next_at = EXCLUDED.next_at, collect_at = EXCLUDED.collect_at;
  RETURN NULL;
END $$;
CREATE TRIGGER to_be_metered AFTER INSERT OR UPDATE OF provided_at, released_at, ends_at, state ON bookings
  FOR EACH ROW WHEN (NEW.provided_at IS NOT NULL) EXECUTE FUNCTION to_be_metered();

-- Quota. A commitment is one owner x scope x tenant-day x price. quantity = unit-seconds x 840 x share.
CREATE TABLE scopes (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant_id uuid NOT NULL REFERENCES tenants,
  subject text NOT NULL CHECK (subject IN ('tenant','project','user')), project_id uuid, account_id uuid REFERENCES accounts,
  kind text REFERENCES kinds,                                 -- null: every kind
  max_rate bigint CHECK (max_rate >= 0), max_quantity bigint CHECK (max_quantity >= 0),   -- at once; in a month
  UNIQUE (tenant_id, id), FOREIGN KEY (tenant_id, project_id) REFERENCES projects,
  CHECK ((subject = 'tenant') = (project_id IS NULL AND account_id IS NULL)), CHECK ((subject = 'user') = (account_id IS NOT NULL)),
  CONSTRAINT one_scope UNIQUE NULLS NOT DISTINCT (tenant_id, subject, project_id, account_id, kind));
CREATE TABLE commitments (
  tenant_id uuid NOT NULL, scope_id bigint NOT NULL, booking_id uuid, request_id uuid, day date NOT NULL,
  starts_at timestamptz NOT NULL, ends_at timestamptz NOT NULL, rate int NOT NULL CHECK (rate > 0),
  price numeric NOT NULL CHECK (price >= 0 AND scale(price) <= 6),
  quantity bigint GENERATED ALWAYS AS (rate * extract(epoch FROM ends_at - starts_at)::bigint) STORED,
  FOREIGN KEY (tenant_id, scope_id) REFERENCES scopes (tenant_id, id),
  FOREIGN KEY (tenant_id, booking_id) REFERENCES bookings (tenant_id, id),
  FOREIGN KEY (tenant_id, request_id) REFERENCES requests (tenant_id, id),
  CHECK (num_nonnulls(booking_id, request_id) = 1),
  CHECK (good_window(tstzrange(starts_at, ends_at)) AND ends_at - starts_at <= interval '26 hours'),
  CONSTRAINT one_commitment UNIQUE NULLS NOT DISTINCT (scope_id, booking_id, request_id, starts_at));
CREATE INDEX commitments_of_scope ON commitments (tenant_id, scope_id, day) INCLUDE (starts_at, ends_at, rate, quantity);
CREATE INDEX commitments_of_booking ON commitments (booking_id);
CREATE INDEX commitments_of_request ON commitments (request_id) WHERE request_id IS NOT NULL;

-- Due work, a platform table. subject: an allocation or a request that can lapse. next_at is on the product clock, the
-- lease on the wall clock. The call slot makes "at most two calls in flight per cluster" a constraint.
CREATE TABLE due (
  subject uuid PRIMARY KEY, tenant_id uuid NOT NULL, cluster_id int REFERENCES clusters, next_at timestamptz NOT NULL,
  lease_token uuid, leased_until timestamptz, call_slot smallint CHECK (call_slot IN (1, 2)),
  CHECK (num_nonnulls(lease_token, leased_until) IN (0, 2)),
  CHECK (CASE WHEN cluster_id IS NULL THEN call_slot IS NULL ELSE (call_slot IS NULL) = (lease_token IS NULL) END),
  CONSTRAINT two_calls_per_cluster UNIQUE (cluster_id, call_slot));
CREATE INDEX due_of_cluster ON due (cluster_id, next_at);
CREATE INDEX due_next ON due (next_at);

CREATE TABLE conditions (                                     -- beside the state; open while `until` is null
  tenant_id uuid NOT NULL, id uuid NOT NULL, booking_id uuid NOT NULL, type text NOT NULL CHECK (type IN ('at_risk','late','degraded','blocked','idle')),
  since timestamptz NOT NULL, until timestamptz, why text NOT NULL, PRIMARY KEY (tenant_id, id),
  FOREIGN KEY (tenant_id, booking_id) REFERENCES bookings (tenant_id, id), CHECK (until IS NULL OR until >= since));
CREATE UNIQUE INDEX one_open_condition ON conditions (booking_id, type) WHERE until IS NULL;
CREATE TABLE outages (                                        -- units of an active booking that were not there
  tenant_id uuid NOT NULL, id uuid NOT NULL, booking_id uuid NOT NULL, units int4multirange NOT NULL, since timestamptz NOT NULL,
  until timestamptz, why text NOT NULL, PRIMARY KEY (tenant_id, id),
  FOREIGN KEY (tenant_id, booking_id) REFERENCES bookings (tenant_id, id), CHECK (until IS NULL OR until >= since));
CREATE INDEX outages_of_booking ON outages (booking_id);
CREATE TABLE refusals (                                       -- for statistics; written in a transaction of their own
  tenant_id uuid NOT NULL REFERENCES tenants, id uuid NOT NULL, at timestamptz NOT NULL, project_id uuid, account_id uuid,
  codes text[] NOT NULL, wanted jsonb NOT NULL, PRIMARY KEY (tenant_id, id));

-- Metering. No unit-second twice, whoever booked it. `void` rows were corrected.
CREATE TABLE intervals (
  id uuid PRIMARY KEY, tenant_id uuid NOT NULL, booking_id uuid NOT NULL, units int4multirange NOT NULL,
  during tstzrange NOT NULL CHECK (good_window(during)), quantity bigint NOT NULL CHECK (quantity > 0),
  evidence jsonb NOT NULL, void boolean NOT NULL,
  UNIQUE (tenant_id, id), FOREIGN KEY (tenant_id, booking_id) REFERENCES bookings (tenant_id, id),
  CONSTRAINT meter_key EXCLUDE USING gist (units WITH &&, during WITH &&) WHERE (NOT void));
CREATE INDEX intervals_of_booking ON intervals (booking_id);
CREATE TABLE interval_conflicts (                             -- a second report that differs: shown, never summed
  tenant_id uuid NOT NULL, id uuid NOT NULL, booking_id uuid NOT NULL, at timestamptz NOT NULL, units int4multirange NOT NULL,
  during tstzrange NOT NULL, evidence jsonb NOT NULL, settled_at timestamptz, PRIMARY KEY (tenant_id, id),
  FOREIGN KEY (tenant_id, booking_id) REFERENCES bookings (tenant_id, id));
CREATE TABLE usage (                                          -- how reserved time splits; used + unused + unknown = reserved
  tenant_id uuid NOT NULL, booking_id uuid NOT NULL, starts_at timestamptz NOT NULL, ends_at timestamptz NOT NULL,
  used bigint NOT NULL CHECK (used >= 0), unused bigint NOT NULL CHECK (unused >= 0), unknown bigint NOT NULL CHECK (unknown >= 0),
  energy_wh numeric, PRIMARY KEY (tenant_id, booking_id, starts_at),
  FOREIGN KEY (tenant_id, booking_id) REFERENCES bookings (tenant_id, id), CHECK (good_window(tstzrange(starts_at, ends_at))));
CREATE TABLE samples (                                        -- of booked units only; arrays run over `gpus`; null = not known
  tenant_id uuid NOT NULL, booking_id uuid NOT NULL, node_id int NOT NULL REFERENCES nodes, at timestamptz NOT NULL,
  seconds int NOT NULL CHECK (seconds > 0), gpus int[] NOT NULL, utilisation real[] NOT NULL, memory_gb real[] NOT NULL,
  power_w real[] NOT NULL, temperature_c real[] NOT NULL, in_use boolean[] NOT NULL,
  PRIMARY KEY (tenant_id, booking_id, node_id, at), FOREIGN KEY (tenant_id, booking_id) REFERENCES bookings (tenant_id, id));
CREATE TABLE workloads (
  tenant_id uuid NOT NULL, booking_id uuid NOT NULL, id text NOT NULL, kind text NOT NULL, name text NOT NULL,
  state text NOT NULL CHECK (state IN ('pending','running','finished','failed','stopped')), why text NOT NULL,
  units int NOT NULL, started_at timestamptz, ended_at timestamptz, PRIMARY KEY (tenant_id, booking_id, id),
  FOREIGN KEY (tenant_id, booking_id) REFERENCES bookings (tenant_id, id));
-- Charges: exact = quantity x price; SCALE is divided out when a line is rounded. Append-only: the app may only insert.
CREATE TABLE charges (
  id uuid PRIMARY KEY, tenant_id uuid NOT NULL, booking_id uuid NOT NULL, interval_id uuid,
  kind text NOT NULL CHECK (kind IN ('use','fee','credit')), price_id int NOT NULL REFERENCES prices, unit_kind text NOT NULL,
  cost_centre text NOT NULL, project_id uuid NOT NULL, project text NOT NULL, person text NOT NULL, account_id uuid,
  reference text NOT NULL, currency text NOT NULL, starts_at timestamptz NOT NULL, ends_at timestamptz NOT NULL, month date NOT NULL,
  quantity bigint NOT NULL CHECK (quantity <> 0), unit_price numeric NOT NULL, why text NOT NULL,
  exact numeric GENERATED ALWAYS AS (quantity * unit_price) STORED,
  FOREIGN KEY (tenant_id, booking_id) REFERENCES bookings (tenant_id, id),
  FOREIGN KEY (tenant_id, interval_id) REFERENCES intervals (tenant_id, id),
  CHECK ((kind = 'credit') = (quantity < 0)), CHECK (kind <> 'use' OR interval_id IS NOT NULL),
  CHECK (unit_price >= 0 AND scale(unit_price) <= 6), CHECK (extract(day FROM month) = 1),
  CONSTRAINT one_charge UNIQUE NULLS NOT DISTINCT (booking_id, kind, interval_id, price_id, starts_at));
CREATE INDEX charges_of_month ON charges (tenant_id, month);
CREATE INDEX charges_of_booking ON charges (booking_id);
-- Half away from zero in whole numbers; round(exact / 3024000, 2) rounds twice and can be a cent off.
CREATE FUNCTION line_amount(exact numeric, places int) RETURNS numeric LANGUAGE sql IMMUTABLE AS
  $$SELECT sign(exact) * div(2 * abs(exact) * 10::numeric ^ places + 3024000, 2 * 3024000) * ('1e-' || places)::numeric$$;

-- Who did what (written with every state change). seq only sorts.
CREATE TABLE history (tenant_id uuid NOT NULL, seq bigint GENERATED ALWAYS AS IDENTITY, booking_id uuid NOT NULL,
  at timestamptz NOT NULL, account_id uuid, actor text NOT NULL, event text NOT NULL, before text, after text NOT NULL,
  why text NOT NULL, changes jsonb, PRIMARY KEY (tenant_id, seq),
  FOREIGN KEY (tenant_id, booking_id) REFERENCES bookings (tenant_id, id));
CREATE INDEX history_of_booking ON history (booking_id);
CREATE TABLE outbox (                                         -- notices to send; every room may write by plumbing
  tenant_id uuid NOT NULL REFERENCES tenants, id uuid NOT NULL, at timestamptz NOT NULL, account_id uuid, kind text NOT NULL,
  booking_id uuid, payload jsonb NOT NULL, read_at timestamptz, sent_at timestamptz, PRIMARY KEY (tenant_id, id),
  FOREIGN KEY (tenant_id, booking_id) REFERENCES bookings (tenant_id, id));

-- ---------- row-level security and rights ----------
-- Not FORCEd: the owner migrates and backs up. tests/test_promises.py asks the catalogue for all of this.
DO $$ DECLARE t text; BEGIN
  FOREACH t IN ARRAY ARRAY['tenants','projects','memberships','audit','bookings','booking_prices','idempotency','requests','scopes',
      'commitments','conditions','outages','refusals','intervals','interval_conflicts','usage','samples','workloads','charges',
      'history','outbox'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY own ON %I TO berth_app USING (tenant_id = berth_tenant())
                    WITH CHECK (tenant_id = berth_tenant())', t);
    EXECUTE format('CREATE POLICY everyone ON %I FOR SELECT TO berth_reader USING (true)', t);
  END LOOP;
END $$;
-- A person sees the list of his or her own memberships, and the names of those tenants, before choosing one.
CREATE POLICY mine ON memberships FOR SELECT TO berth_app USING (account_id = berth_account());
CREATE POLICY mine ON tenants FOR SELECT TO berth_app USING (
  EXISTS (SELECT FROM memberships m WHERE m.tenant_id = tenants.tenant_id AND m.account_id = berth_account()));

GRANT USAGE ON SCHEMA public TO berth_app, berth_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO berth_app, berth_reader;   -- clock: read only, a running product cannot move it
REVOKE ALL ON accounts, sessions, tokens, sign_in_tries FROM berth_reader;
GRANT SELECT (id, issuer, subject, name, email, zone, disabled, created_at) ON accounts TO berth_reader;
GRANT INSERT ON installation, accounts, sessions, sign_in_tries, tokens, platform_roles, platform_audit, kinds, clusters, pools, nodes,
  slots, devices, unit_faults, node_outages, external_use, price_versions, prices, allocations, tenants, projects, memberships, audit,
  bookings, booking_prices, idempotency, requests, holds, waiting, hold_moves, metering, scopes, commitments, due, conditions, outages,
  refusals, intervals, interval_conflicts, usage, samples, workloads, charges, history, outbox TO berth_app;
GRANT UPDATE ON accounts, sessions, tokens, kinds, clusters, pools, nodes, devices, unit_faults, node_outages, external_use, tenants,
  projects, memberships, bookings, requests, scopes, commitments, due, waiting, metering, conditions, outages, usage, workloads,
  outbox, interval_conflicts TO berth_app;
GRANT UPDATE (valid) ON slots TO berth_app;
GRANT UPDATE (generation, name, gone, wanted, ensured, seen, seen_at, in_place_since, empty_since, sampled_until, failures, last_error)
  ON allocations TO berth_app;
GRANT UPDATE (void) ON intervals TO berth_app;
GRANT UPDATE (booking_id, request_id, node_id, units, during, live, pinned) ON holds TO berth_app;
GRANT DELETE ON sessions, sign_in_tries, platform_roles, memberships, commitments, due, waiting, hold_moves, metering, idempotency,
  samples, booking_prices TO berth_app;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO berth_app;
