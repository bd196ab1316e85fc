-- A state file as schema 1 was released. Never edit the schema here: it is what step 1 must keep making.
PRAGMA journal_mode = WAL;
CREATE TABLE schema_version (version INTEGER PRIMARY KEY);
CREATE TABLE identity (owner TEXT NOT NULL);
CREATE TABLE fleets (
            name TEXT PRIMARY KEY, phase TEXT NOT NULL, generation INTEGER NOT NULL, record TEXT NOT NULL
        ) WITHOUT ROWID;
CREATE TABLE replicas (
            fleet TEXT NOT NULL, id TEXT NOT NULL, lane TEXT NOT NULL, state TEXT NOT NULL,
            created_s REAL NOT NULL, changed_s REAL NOT NULL, drain_requested INTEGER NOT NULL, record TEXT NOT NULL,
            PRIMARY KEY (fleet, id)
        ) WITHOUT ROWID;
CREATE TABLE numbers (
            fleet TEXT NOT NULL, lane TEXT NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (fleet, lane)
        ) WITHOUT ROWID;
CREATE TABLE intents (
            token TEXT PRIMARY KEY, fleet TEXT NOT NULL, replica_id TEXT NOT NULL, state TEXT NOT NULL,
            created_s REAL NOT NULL, record TEXT NOT NULL
        ) WITHOUT ROWID;
CREATE INDEX intents_by_fleet ON intents (fleet, state);
CREATE TABLE memories (fleet TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE journal (
            seq INTEGER PRIMARY KEY AUTOINCREMENT, fleet TEXT NOT NULL, subject TEXT NOT NULL, record TEXT NOT NULL
        );
CREATE INDEX journal_by_fleet ON journal (fleet, seq);
CREATE INDEX journal_by_subject ON journal (fleet, subject, seq);
INSERT INTO schema_version VALUES (1);
INSERT INTO identity VALUES ('5eed5eed5eed5eed5eed5eed5eed5eed');
INSERT INTO replicas VALUES ('demo', 'short-1', 'short', 'ready', 1767614400.0, 1767614400.0, 1,
  '{"id":"short-1","fleet":"demo","lane":"short","engine":"emulator","state":"ready","market":"on-demand","offering":"g6e.xlarge/zone-a/on-demand","gpu":"L40S","price_usd_per_hour":1.861,"created_at":"2026-01-05T12:00:00Z","changed_at":"2026-01-05T12:00:00Z","reason":"","node_id":"","host":"","port":0,"drain_requested":true,"notice_deadline":null,"ready_at":null,"drain_deadline":null,"fault":""}');
INSERT INTO numbers VALUES ('demo', 'short', 7);
INSERT INTO intents VALUES ('token-2', 'demo', 'short-2', 'open', 1767614400.0,
  '{"token":"token-2","fleet":"demo","replica_id":"short-2","state":"open","request":{"token":"token-2","owner":"owner-1","fleet":"demo","replica_id":"short-2","lane":"short","offering":"g6e.xlarge/zone-a/on-demand","market":"on-demand","notice_s":0.0,"argv":["/nonexistent/engine"],"env":{},"host":"127.0.0.1","port":20002,"tags":{"lane":"short"}},"created_at":"2026-01-05T12:00:00Z"}');
INSERT INTO memories VALUES ('demo',
  '{"lanes":{"short":{"wanted":3,"planned":-1,"requested":0,"up_since":null,"down_since":null,"step":"normal","overloaded_since":null,"calm_since":null,"failures":0,"last_failure":null}},"missing_since":{},"unhealthy_since":{},"orphaned_since":{},"gateway_missing_since":null,"gateway_started_at":null,"gateway_starts":0}');
INSERT INTO journal VALUES (41, 'demo', 'short',
  '{"seq":0,"at":"2026-01-05T12:00:00Z","fleet":"demo","kind":"decision","subject":"short","action":"launch","reason":"one is missing","shadow":false,"ok":true,"inputs":{}}');
