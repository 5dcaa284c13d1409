BEGIN TRANSACTION;
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY, job TEXT NOT NULL, began TEXT NOT NULL, ended TEXT,
    outcome TEXT NOT NULL DEFAULT 'running' CHECK (outcome IN ('running', 'done', 'died', 'stopped')),
    reason TEXT NOT NULL DEFAULT ''
);
INSERT INTO "attempts" VALUES(1,'look:e817a329067656ac2909b140ce81b56146c9496bd036f5d8e8e8f91e1506b7a6','2026-11-22T13:12:35.546441+00:00','2026-11-22T13:12:35.563139+00:00','done','');
INSERT INTO "attempts" VALUES(2,'look:c910bde0953068185ff00a0a29bd96f7a4c2849114fcb631d29759ab704e5b6d','2026-11-22T13:12:35.564633+00:00','2026-11-22T13:12:35.578067+00:00','done','');
INSERT INTO "attempts" VALUES(3,'look:943ccc408dc573fba856c79d9e5b1e41560f55a0d6f9256e4e032a98aa1009a8','2026-11-22T13:12:35.584836+00:00','2026-11-22T13:12:35.594106+00:00','done','');
INSERT INTO "attempts" VALUES(4,'look:24b5c830a28c3b9d3d53c02292aa9edb485c53840aab01a03ea267f42a5715e2','2026-11-22T13:12:35.600994+00:00','2026-11-22T13:12:35.614287+00:00','done','');
INSERT INTO "attempts" VALUES(5,'look:6ce33b34f066cd44d7028ffceee9231512dd3cfd1960e81d66c414ca804ff9c2','2026-11-22T13:12:35.622354+00:00','2026-11-22T13:12:35.736402+00:00','died','the worker ended with exit code 7');
INSERT INTO "attempts" VALUES(6,'look:6ce33b34f066cd44d7028ffceee9231512dd3cfd1960e81d66c414ca804ff9c2','2026-11-22T13:12:36.372480+00:00','2026-11-22T13:12:36.406396+00:00','died','the worker ended with exit code 7');
INSERT INTO "attempts" VALUES(7,'0f3173e809d519b5b2608eedf9cc7d5058e51566ad2c85a2ab6866f034976b04','2026-11-22T13:12:37.331633+00:00','2026-11-22T13:12:37.358319+00:00','done','');
INSERT INTO "attempts" VALUES(8,'0cc5b9c302711e1ea885f3b9827356053be583f18ecf6a106fb0069ef85b6d9f','2026-11-22T13:12:37.362321+00:00','2026-11-22T13:12:37.406324+00:00','done','');
INSERT INTO "attempts" VALUES(9,'1097101b76c74a8fdc12a71e99afc8486d408e1a8201b500b051970db5cbdfb1','2026-11-22T13:12:37.414333+00:00','2026-11-22T13:12:37.426294+00:00','done','');
INSERT INTO "attempts" VALUES(10,'d5a209c5b4cf6c307c49d60b28facffd407cd10ab0f7ef4cee5fe3c0937c5c35','2026-11-22T13:12:37.436783+00:00','2026-11-22T13:12:37.482308+00:00','died','RuntimeError: no memory');
INSERT INTO "attempts" VALUES(11,'d5a209c5b4cf6c307c49d60b28facffd407cd10ab0f7ef4cee5fe3c0937c5c35','2026-11-22T13:12:38.069492+00:00','2026-11-22T13:12:38.102338+00:00','died','RuntimeError: no memory');
CREATE TABLE check_results (
    key TEXT NOT NULL REFERENCES gradings (key), task TEXT NOT NULL, name TEXT NOT NULL, position INTEGER NOT NULL,
    title TEXT NOT NULL, points REAL NOT NULL, status TEXT NOT NULL CHECK (status IN ('passed', 'failed', 'skipped')),
    what TEXT NOT NULL, parts TEXT NOT NULL,
    PRIMARY KEY (key, task, name)
);
INSERT INTO "check_results" VALUES('0f3173e809d519b5b2608eedf9cc7d5058e51566ad2c85a2ab6866f034976b04','P1.1','first',0,'It is first',4.0,'passed','','{}');
INSERT INTO "check_results" VALUES('0f3173e809d519b5b2608eedf9cc7d5058e51566ad2c85a2ab6866f034976b04','P1.1','second',1,'It is second',6.0,'passed','','{}');
INSERT INTO "check_results" VALUES('0f3173e809d519b5b2608eedf9cc7d5058e51566ad2c85a2ab6866f034976b04','P1.2','first',0,'It is first',4.0,'passed','','{}');
INSERT INTO "check_results" VALUES('0f3173e809d519b5b2608eedf9cc7d5058e51566ad2c85a2ab6866f034976b04','P1.2','second',1,'It is second',6.0,'passed','','{}');
INSERT INTO "check_results" VALUES('0f3173e809d519b5b2608eedf9cc7d5058e51566ad2c85a2ab6866f034976b04','P1.3','first',0,'It is first',4.0,'passed','','{}');
INSERT INTO "check_results" VALUES('0f3173e809d519b5b2608eedf9cc7d5058e51566ad2c85a2ab6866f034976b04','P1.3','second',1,'It is second',6.0,'passed','','{}');
INSERT INTO "check_results" VALUES('0cc5b9c302711e1ea885f3b9827356053be583f18ecf6a106fb0069ef85b6d9f','P1.1','first',0,'It is first',4.0,'passed','','{}');
INSERT INTO "check_results" VALUES('0cc5b9c302711e1ea885f3b9827356053be583f18ecf6a106fb0069ef85b6d9f','P1.1','second',1,'It is second',6.0,'passed','','{}');
INSERT INTO "check_results" VALUES('0cc5b9c302711e1ea885f3b9827356053be583f18ecf6a106fb0069ef85b6d9f','P1.2','first',0,'It is first',4.0,'passed','','{}');
INSERT INTO "check_results" VALUES('0cc5b9c302711e1ea885f3b9827356053be583f18ecf6a106fb0069ef85b6d9f','P1.2','second',1,'It is second',6.0,'failed','=cmd|'' /C calc''!A0 <script>alert(1)</script> ?','{}');
INSERT INTO "check_results" VALUES('0cc5b9c302711e1ea885f3b9827356053be583f18ecf6a106fb0069ef85b6d9f','P1.3','first',0,'It is first',4.0,'passed','','{}');
INSERT INTO "check_results" VALUES('0cc5b9c302711e1ea885f3b9827356053be583f18ecf6a106fb0069ef85b6d9f','P1.3','second',1,'It is second',6.0,'passed','','{}');
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO "facts" VALUES('seed','1271033298529027573');
INSERT INTO "facts" VALUES('late','penalty_per_day = 10
[P1]
due = 2026-01-01T00:00:00
[P1.submitted]
ada = 2026-01-02T00:00:00
');
CREATE TABLE gradings (
    key TEXT PRIMARY KEY, sha256 TEXT NOT NULL, project TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done', 'refused', 'failed')),
    reason TEXT NOT NULL DEFAULT '', seconds REAL NOT NULL DEFAULT 0
);
INSERT INTO "gradings" VALUES('0f3173e809d519b5b2608eedf9cc7d5058e51566ad2c85a2ab6866f034976b04','e817a329067656ac2909b140ce81b56146c9496bd036f5d8e8e8f91e1506b7a6','P1','done','',0.5);
INSERT INTO "gradings" VALUES('0cc5b9c302711e1ea885f3b9827356053be583f18ecf6a106fb0069ef85b6d9f','c910bde0953068185ff00a0a29bd96f7a4c2849114fcb631d29759ab704e5b6d','P1','done','',0.5);
INSERT INTO "gradings" VALUES('1097101b76c74a8fdc12a71e99afc8486d408e1a8201b500b051970db5cbdfb1','943ccc408dc573fba856c79d9e5b1e41560f55a0d6f9256e4e032a98aa1009a8','P1','refused','the notebook''s structure is damaged; what to do: open it in Jupyter',0.0);
INSERT INTO "gradings" VALUES('d5a209c5b4cf6c307c49d60b28facffd407cd10ab0f7ef4cee5fe3c0937c5c35','24b5c830a28c3b9d3d53c02292aa9edb485c53840aab01a03ea267f42a5715e2','P1','failed','RuntimeError: no memory',0.0);
CREATE TABLE hand_marks (
    student TEXT NOT NULL, question TEXT NOT NULL, points REAL NOT NULL, comment TEXT NOT NULL,
    PRIMARY KEY (student, question)
);
INSERT INTO "hand_marks" VALUES('bob','P1.4',2.5,'good');
CREATE TABLE handed (
    student TEXT NOT NULL, slot TEXT NOT NULL, name TEXT NOT NULL, assignment TEXT NOT NULL, source TEXT NOT NULL,
    sha256 TEXT NOT NULL, submitted TEXT, late INTEGER NOT NULL, problem TEXT NOT NULL, collected TEXT NOT NULL,
    project TEXT NOT NULL DEFAULT '', key TEXT,
    PRIMARY KEY (student, slot)
);
INSERT INTO "handed" VALUES('ada','ada.ipynb','','','ada.ipynb','e817a329067656ac2909b140ce81b56146c9496bd036f5d8e8e8f91e1506b7a6',NULL,0,'','2026-11-22T13:12:34.952591+00:00','P1','0f3173e809d519b5b2608eedf9cc7d5058e51566ad2c85a2ab6866f034976b04');
INSERT INTO "handed" VALUES('bob','bob.ipynb','','','bob.ipynb','c910bde0953068185ff00a0a29bd96f7a4c2849114fcb631d29759ab704e5b6d',NULL,0,'','2026-11-22T13:12:34.952591+00:00','P1','0cc5b9c302711e1ea885f3b9827356053be583f18ecf6a106fb0069ef85b6d9f');
INSERT INTO "handed" VALUES('carl','carl.ipynb','','','carl.ipynb','943ccc408dc573fba856c79d9e5b1e41560f55a0d6f9256e4e032a98aa1009a8',NULL,0,'','2026-11-22T13:12:34.952591+00:00','P1','1097101b76c74a8fdc12a71e99afc8486d408e1a8201b500b051970db5cbdfb1');
INSERT INTO "handed" VALUES('dora','dora.ipynb','','','dora.ipynb','24b5c830a28c3b9d3d53c02292aa9edb485c53840aab01a03ea267f42a5715e2',NULL,0,'','2026-11-22T13:12:34.952591+00:00','P1','d5a209c5b4cf6c307c49d60b28facffd407cd10ab0f7ef4cee5fe3c0937c5c35');
INSERT INTO "handed" VALUES('gina','gina.ipynb','','','gina.ipynb','6ce33b34f066cd44d7028ffceee9231512dd3cfd1960e81d66c414ca804ff9c2',NULL,0,'it could not be read: the worker ended with exit code 7','2026-11-22T13:12:34.952591+00:00','',NULL);
CREATE TABLE notebooks (
    sha256 TEXT NOT NULL, course TEXT NOT NULL, project TEXT NOT NULL, problem TEXT NOT NULL,
    PRIMARY KEY (sha256, course)
);
INSERT INTO "notebooks" VALUES('e817a329067656ac2909b140ce81b56146c9496bd036f5d8e8e8f91e1506b7a6','c76ecd4331180fe4b3816bac0ef1688d579a71239657f3be01450a3252da0027','P1','');
INSERT INTO "notebooks" VALUES('c910bde0953068185ff00a0a29bd96f7a4c2849114fcb631d29759ab704e5b6d','c76ecd4331180fe4b3816bac0ef1688d579a71239657f3be01450a3252da0027','P1','');
INSERT INTO "notebooks" VALUES('943ccc408dc573fba856c79d9e5b1e41560f55a0d6f9256e4e032a98aa1009a8','c76ecd4331180fe4b3816bac0ef1688d579a71239657f3be01450a3252da0027','P1','');
INSERT INTO "notebooks" VALUES('24b5c830a28c3b9d3d53c02292aa9edb485c53840aab01a03ea267f42a5715e2','c76ecd4331180fe4b3816bac0ef1688d579a71239657f3be01450a3252da0027','P1','');
INSERT INTO "notebooks" VALUES('6ce33b34f066cd44d7028ffceee9231512dd3cfd1960e81d66c414ca804ff9c2','c76ecd4331180fe4b3816bac0ef1688d579a71239657f3be01450a3252da0027','','it could not be read: the worker ended with exit code 7');
CREATE TABLE plans (id TEXT PRIMARY KEY, plan TEXT NOT NULL);
INSERT INTO "plans" VALUES('P1','{"id": "P1", "title": "Project P1", "tasks": [{"id": "P1.1", "title": "Task 1", "points": 10.0, "checks": [["first", "It is first", 4.0], ["second", "It is second", 6.0]]}, {"id": "P1.2", "title": "Task 2", "points": 10.0, "checks": [["first", "It is first", 4.0], ["second", "It is second", 6.0]]}, {"id": "P1.3", "title": "Task 3", "points": 10.0, "checks": [["first", "It is first", 4.0], ["second", "It is second", 6.0]]}], "questions": [{"id": "P1.4", "title": "Why?", "bonus": 5.0}], "digest": "1", "timed": false}');
INSERT INTO "plans" VALUES('P2','{"id": "P2", "title": "Project P2", "tasks": [{"id": "P2.1", "title": "Task 1", "points": 10.0, "checks": [["first", "It is first", 4.0], ["second", "It is second", 6.0]]}, {"id": "P2.2", "title": "Task 2", "points": 10.0, "checks": [["first", "It is first", 4.0], ["second", "It is second", 6.0]]}, {"id": "P2.3", "title": "Task 3", "points": 10.0, "checks": [["first", "It is first", 4.0], ["second", "It is second", 6.0]]}], "questions": [{"id": "P2.4", "title": "Why?", "bonus": 5.0}], "digest": "1", "timed": true}');
CREATE TABLE task_results (
    key TEXT NOT NULL REFERENCES gradings (key), task TEXT NOT NULL, position INTEGER NOT NULL, title TEXT NOT NULL,
    notes TEXT NOT NULL,
    PRIMARY KEY (key, task)
);
INSERT INTO "task_results" VALUES('0f3173e809d519b5b2608eedf9cc7d5058e51566ad2c85a2ab6866f034976b04','P1.1',0,'Task 1','[]');
INSERT INTO "task_results" VALUES('0f3173e809d519b5b2608eedf9cc7d5058e51566ad2c85a2ab6866f034976b04','P1.2',1,'Task 2','[]');
INSERT INTO "task_results" VALUES('0f3173e809d519b5b2608eedf9cc7d5058e51566ad2c85a2ab6866f034976b04','P1.3',2,'Task 3','[]');
INSERT INTO "task_results" VALUES('0cc5b9c302711e1ea885f3b9827356053be583f18ecf6a106fb0069ef85b6d9f','P1.1',0,'Task 1','[]');
INSERT INTO "task_results" VALUES('0cc5b9c302711e1ea885f3b9827356053be583f18ecf6a106fb0069ef85b6d9f','P1.2',1,'Task 2','[]');
INSERT INTO "task_results" VALUES('0cc5b9c302711e1ea885f3b9827356053be583f18ecf6a106fb0069ef85b6d9f','P1.3',2,'Task 3','[]');
CREATE INDEX attempts_of_job ON attempts (job);
COMMIT;
