BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0012');
CREATE TABLE archive_file (
	id CHAR(32) NOT NULL, 
	run_id CHAR(32) NOT NULL, 
	event_type_id INTEGER NOT NULL, 
	location TEXT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	first_position BIGINT NOT NULL, 
	last_position BIGINT NOT NULL, 
	items BIGINT NOT NULL, 
	bytes BIGINT, 
	CONSTRAINT pk_archive_file PRIMARY KEY (id), 
	CONSTRAINT ck_archive_file_state CHECK (state IN ('writing', 'kept')), 
	CONSTRAINT fk_archive_file_run_id FOREIGN KEY(run_id) REFERENCES archive_run (id), 
	CONSTRAINT fk_archive_file_event_type_id FOREIGN KEY(event_type_id) REFERENCES event_type (id)
);
CREATE TABLE archive_run (
	id CHAR(32) NOT NULL, 
	started_at DATETIME NOT NULL, 
	lease_until DATETIME NOT NULL, 
	ended_at DATETIME, 
	CONSTRAINT pk_archive_run PRIMARY KEY (id)
);
CREATE TABLE archived_envelope (
	envelope_id CHAR(32) NOT NULL, 
	archived_at DATETIME NOT NULL, 
	removed_at DATETIME, 
	restored_at DATETIME, 
	CONSTRAINT pk_archived_envelope PRIMARY KEY (envelope_id), 
	CONSTRAINT fk_archived_envelope_envelope_id FOREIGN KEY(envelope_id) REFERENCES envelope (id)
);
CREATE TABLE archived_event (
	event_id CHAR(32) NOT NULL, 
	file_id CHAR(32) NOT NULL, 
	segments INTEGER NOT NULL, 
	hash BLOB NOT NULL, 
	CONSTRAINT pk_archived_event PRIMARY KEY (event_id), 
	CONSTRAINT fk_archived_event_event_id FOREIGN KEY(event_id) REFERENCES event (id), 
	CONSTRAINT fk_archived_event_file_id FOREIGN KEY(file_id) REFERENCES archive_file (id)
);
CREATE TABLE bulk_attempt (
	id CHAR(32) NOT NULL, 
	event_id CHAR(32) NOT NULL, 
	node_id INTEGER NOT NULL, 
	role_id INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	started_at DATETIME NOT NULL, 
	lease_until DATETIME NOT NULL, 
	progress FLOAT DEFAULT '0' NOT NULL, 
	ended_at DATETIME, 
	code VARCHAR(64), 
	cause TEXT, 
	items BIGINT, 
	bytes BIGINT, 
	hash BLOB, 
	CONSTRAINT pk_bulk_attempt PRIMARY KEY (id), 
	CONSTRAINT ck_bulk_attempt_state CHECK (state IN ('building', 'ready', 'failed', 'abandoned')), 
	CONSTRAINT fk_bulk_attempt_event_id FOREIGN KEY(event_id) REFERENCES event (id), 
	CONSTRAINT fk_bulk_attempt_node_id FOREIGN KEY(node_id) REFERENCES node (id), 
	CONSTRAINT fk_bulk_attempt_role_id FOREIGN KEY(role_id) REFERENCES role (id)
);
CREATE TABLE bulk_segment (
	attempt_id CHAR(32) NOT NULL, 
	part INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	items INTEGER NOT NULL, 
	hash BLOB NOT NULL, 
	first_index BIGINT NOT NULL, 
	sources BLOB, 
	data BLOB NOT NULL, 
	CONSTRAINT pk_bulk_segment PRIMARY KEY (attempt_id, part, number), 
	CONSTRAINT fk_bulk_segment_attempt_id FOREIGN KEY(attempt_id) REFERENCES bulk_attempt (id)
);
CREATE TABLE configuration (
	id INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	CONSTRAINT pk_configuration PRIMARY KEY (id), 
	CONSTRAINT ck_configuration_one_row CHECK (id = 1)
);
INSERT INTO "configuration" VALUES(1,9);
CREATE TABLE contents (
	graph_id INTEGER NOT NULL, 
	block BIGINT NOT NULL, 
	positions BLOB NOT NULL, 
	events BIGINT NOT NULL, 
	items BIGINT NOT NULL, 
	oldest_at DATETIME NOT NULL, 
	newest_at DATETIME NOT NULL, 
	CONSTRAINT pk_contents PRIMARY KEY (graph_id, block), 
	CONSTRAINT fk_contents_graph_id FOREIGN KEY(graph_id) REFERENCES graph (id)
);
CREATE TABLE contents_end (
	id INTEGER NOT NULL, 
	position BIGINT NOT NULL, 
	CONSTRAINT pk_contents_end PRIMARY KEY (id), 
	CONSTRAINT ck_contents_end_one_row CHECK (id = 1)
);
INSERT INTO "contents_end" VALUES(1,0);
CREATE TABLE correction (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	role_id INTEGER, 
	event_id CHAR(32) NOT NULL, 
	item_index BIGINT NOT NULL, 
	"before" BLOB NOT NULL, 
	"after" BLOB NOT NULL, 
	at DATETIME NOT NULL, 
	reason TEXT NOT NULL, 
	CONSTRAINT fk_correction_role_id FOREIGN KEY(role_id) REFERENCES role (id), 
	CONSTRAINT fk_correction_event_id FOREIGN KEY(event_id) REFERENCES event (id)
);
CREATE TABLE cursor (
	role_id INTEGER NOT NULL, 
	from_position BIGINT NOT NULL, 
	until_position BIGINT, 
	position BIGINT NOT NULL, 
	done BLOB NOT NULL, 
	handed_to BIGINT NOT NULL, 
	CONSTRAINT pk_cursor PRIMARY KEY (role_id), 
	CONSTRAINT fk_cursor_role_id FOREIGN KEY(role_id) REFERENCES role (id)
);
INSERT INTO "cursor" VALUES(1,1,NULL,10,X'',257);
INSERT INTO "cursor" VALUES(2,1,NULL,3,X'',257);
INSERT INTO "cursor" VALUES(4,1,NULL,12,X'',266);
CREATE TABLE decision (
	id INTEGER NOT NULL, 
	move VARCHAR(16) NOT NULL, 
	at DATETIME NOT NULL, 
	reason TEXT NOT NULL, 
	role_id INTEGER, 
	to_role_id INTEGER, 
	graph_id INTEGER, 
	position BIGINT NOT NULL, 
	until_position BIGINT, 
	CONSTRAINT pk_decision PRIMARY KEY (id), 
	CONSTRAINT ck_decision_move CHECK (move IN ('dropped', 'rerouted', 'first_graph')), 
	CONSTRAINT fk_decision_graph_id FOREIGN KEY(graph_id) REFERENCES graph (id), 
	CONSTRAINT fk_decision_role_id FOREIGN KEY(role_id) REFERENCES role (id), 
	CONSTRAINT fk_decision_to_role_id FOREIGN KEY(to_role_id) REFERENCES role (id)
);
CREATE TABLE delivery (
	role_id INTEGER NOT NULL, 
	envelope_id CHAR(32) NOT NULL, 
	position BIGINT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	service_id INTEGER, 
	attempts INTEGER NOT NULL, 
	code VARCHAR(64) NOT NULL, 
	cause TEXT NOT NULL, 
	changed_at DATETIME NOT NULL, 
	due_at DATETIME, 
	ordering_key VARCHAR(255), 
	CONSTRAINT pk_delivery PRIMARY KEY (role_id, envelope_id), 
	CONSTRAINT ck_delivery_state CHECK (state IN ('waiting', 'retry', 'held', 'parked')), 
	CONSTRAINT fk_delivery_envelope_id FOREIGN KEY(envelope_id) REFERENCES envelope (id), 
	CONSTRAINT fk_delivery_role_id FOREIGN KEY(role_id) REFERENCES role (id), 
	CONSTRAINT fk_delivery_service_id FOREIGN KEY(service_id) REFERENCES service (id)
);
INSERT INTO "delivery" VALUES(1,'01a206616d877d4485bb8b525fdf6330',7,'waiting',3,0,'worker_absent','no worker of service "w" is there, or each is in trouble','2026-11-23 03:09:38.097236',NULL,NULL);
INSERT INTO "delivery" VALUES(1,'01a206616def746bba03d26ea82204d5',8,'parked',NULL,1,'refused','end_event: the name is missing','2026-11-23 03:09:38.219723',NULL,NULL);
INSERT INTO "delivery" VALUES(1,'01a206616efb73d7b879fcd18cd1a1c9',9,'retry',NULL,1,'error_reply','end_event: RuntimeError(''the disk is full'')','2026-11-23 03:09:38.490014','2026-11-23 03:10:04.151391',NULL);
INSERT INTO "delivery" VALUES(4,'01a20661709c7375b21dadd35ca76da5',10,'parked',NULL,1,'refused','end_event: the name is missing','2026-11-23 03:09:38.892374',NULL,'client 7');
INSERT INTO "delivery" VALUES(4,'01a2066172b377ed93468acb2ad978db',11,'held',NULL,0,'held','an earlier envelope of its ordering key is not settled yet','2026-11-23 03:09:39.381844',NULL,'client 7');
CREATE TABLE edge (
	parent_id INTEGER NOT NULL, 
	child_id INTEGER NOT NULL, 
	CONSTRAINT pk_edge PRIMARY KEY (parent_id, child_id), 
	CONSTRAINT fk_edge_child_id FOREIGN KEY(child_id) REFERENCES node (id), 
	CONSTRAINT fk_edge_parent_id FOREIGN KEY(parent_id) REFERENCES node (id)
);
INSERT INTO "edge" VALUES(3,4);
CREATE TABLE emission_profile (
	id INTEGER NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	person_id INTEGER, 
	descriptor_id INTEGER, 
	encoding VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_emission_profile PRIMARY KEY (id), 
	CONSTRAINT uq_emission_profile_name UNIQUE (name), 
	CONSTRAINT fk_emission_profile_person_id FOREIGN KEY(person_id) REFERENCES person (id), 
	CONSTRAINT fk_emission_profile_descriptor_id FOREIGN KEY(descriptor_id) REFERENCES input_descriptor (id)
);
CREATE TABLE emitter (
	id INTEGER NOT NULL, 
	login VARCHAR(255) NOT NULL, 
	password_hash VARCHAR(255), 
	profile_id INTEGER NOT NULL, 
	removed_at DATETIME, 
	CONSTRAINT pk_emitter PRIMARY KEY (id), 
	CONSTRAINT fk_emitter_profile_id FOREIGN KEY(profile_id) REFERENCES emitter_profile (id), 
	CONSTRAINT uq_emitter_login UNIQUE (login)
);
INSERT INTO "emitter" VALUES(1,'emitter_1','$argon2id$v=19$m=19456,t=2,p=1$KwNC27OExxWMmoVRsCfgdw$dFdqnYmPa/PZzGqrnlnUxiWt7oQlp/vVgeSmRBuwcks',1,NULL);
INSERT INTO "emitter" VALUES(2,'emitter_2','$argon2id$v=19$m=19456,t=2,p=1$KwNC27OExxWMmoVRsCfgdw$dFdqnYmPa/PZzGqrnlnUxiWt7oQlp/vVgeSmRBuwcks',1,NULL);
CREATE TABLE emitter_profile (
	id INTEGER NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	removed_at DATETIME, 
	CONSTRAINT pk_emitter_profile PRIMARY KEY (id), 
	CONSTRAINT uq_emitter_profile_name UNIQUE (name)
);
INSERT INTO "emitter_profile" VALUES(1,'everything',NULL);
CREATE TABLE envelope (
	id CHAR(32) NOT NULL, 
	emitter_id INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	opened_at DATETIME NOT NULL, 
	closed_at DATETIME, 
	position BIGINT, 
	events INTEGER, 
	items BIGINT, 
	bytes BIGINT, 
	hash BLOB, origin_id CHAR(32), ordering_key VARCHAR(255), idempotency_key TEXT, content_hash BLOB, pruned_at DATETIME, 
	CONSTRAINT pk_envelope PRIMARY KEY (id), 
	CONSTRAINT ck_envelope_state CHECK (state IN ('open', 'received', 'cancelled')), 
	CONSTRAINT fk_envelope_emitter_id FOREIGN KEY(emitter_id) REFERENCES emitter (id), 
	CONSTRAINT uq_envelope_position UNIQUE (position)
);
INSERT INTO "envelope" VALUES('01a206616b287204aa9e95453d506968',1,'received','2026-11-23 03:09:37.448461','2026-11-23 03:09:37.462936',1,1,1,6,X'31814C06BDBA0287D8E82EDA4AA54F98A167B68FF0F2A28FC8DC1CAAEB12F3A8',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "envelope" VALUES('01a206616b477ea9bd1847267ac12421',1,'received','2026-11-23 03:09:37.479368','2026-11-23 03:09:37.487648',2,1,1,6,X'31814C06BDBA0287D8E82EDA4AA54F98A167B68FF0F2A28FC8DC1CAAEB12F3A8',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "envelope" VALUES('01a206616b56712dbe4f6f44c483c7f7',1,'received','2026-11-23 03:09:37.495085','2026-11-23 03:09:37.504487',3,1,1,6,X'31814C06BDBA0287D8E82EDA4AA54F98A167B68FF0F2A28FC8DC1CAAEB12F3A8',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "envelope" VALUES('01a206616c287a8d89164485d889a39a',1,'received','2026-11-23 03:09:37.704607','2026-11-23 03:09:37.715388',4,1,2,13,X'A7D6CDEFA5A4E72DFDC6BF6B5244518E3EFE9B13E0A19A16E10011F9486F4326',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "envelope" VALUES('01a206616c35715c9e4ee7fc15875dc0',1,'received','2026-11-23 03:09:37.717947','2026-11-23 03:09:37.730437',5,1,2,13,X'A7D6CDEFA5A4E72DFDC6BF6B5244518E3EFE9B13E0A19A16E10011F9486F4326',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "envelope" VALUES('01a206616c4d77c5877c6ee67806d492',1,'received','2026-11-23 03:09:37.741794','2026-11-23 03:09:37.773343',6,1,2,13,X'A7D6CDEFA5A4E72DFDC6BF6B5244518E3EFE9B13E0A19A16E10011F9486F4326',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "envelope" VALUES('01a206616d877d4485bb8b525fdf6330',1,'received','2026-11-23 03:09:38.055476','2026-11-23 03:09:38.082860',7,1,1,9,X'FDE850FB4EB8EDCFC6AC33224CA4D63550E130A6C1EE8FC5A7C451386383E709',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "envelope" VALUES('01a206616def746bba03d26ea82204d5',1,'received','2026-11-23 03:09:38.159857','2026-11-23 03:09:38.179757',8,1,1,8,X'B9A107DB73A481CD28EAD666EF06F3B91CDF472F67ED41E3B7EB9F56A150B630',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "envelope" VALUES('01a206616efb73d7b879fcd18cd1a1c9',1,'received','2026-11-23 03:09:38.427823','2026-11-23 03:09:38.447614',9,1,1,7,X'53924330398AC6C7B25DCE4CF86F6CCF9E0E0CCB01821F2D73556EBFF517926B',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "envelope" VALUES('01a20661709c7375b21dadd35ca76da5',1,'received','2026-11-23 03:09:38.847794','2026-11-23 03:09:38.847794',10,1,1,7,X'C3978B8248D23033B78A78A9D62ACCCF41F46D7ED67F5A2244D55FF878CEA950',NULL,'client 7',NULL,NULL,NULL);
INSERT INTO "envelope" VALUES('01a2066172b377ed93468acb2ad978db',1,'received','2026-11-23 03:09:39.380254','2026-11-23 03:09:39.380254',11,1,1,8,X'5DECA45B484BE78E09E6DD919AD885879D9DBC8547ACA4FDF40975D51FDF9730',NULL,'client 7',NULL,NULL,NULL);
INSERT INTO "envelope" VALUES('03c0edc71b465579bddbe81f64fdb6d2',1,'received','2026-11-23 03:09:39.603530','2026-11-23 03:09:39.607871',12,1,1,7,X'2B1FAC84D0FA45109227D2345D5BE4F602F1B34A1317B12E065C3FBE5C2A22CE',NULL,NULL,'order 7',X'2B1FAC84D0FA45109227D2345D5BE4F602F1B34A1317B12E065C3FBE5C2A22CE',NULL);
INSERT INTO "envelope" VALUES('01a20661746b709590d911dd9d17bfee',1,'open','2026-11-23 03:09:39.820043',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE envelope_role (
	envelope_id CHAR(32) NOT NULL, 
	role_id INTEGER NOT NULL, replay VARCHAR(255), 
	CONSTRAINT pk_envelope_role PRIMARY KEY (envelope_id, role_id), 
	CONSTRAINT fk_envelope_role_envelope_id FOREIGN KEY(envelope_id) REFERENCES envelope (id), 
	CONSTRAINT fk_envelope_role_role_id FOREIGN KEY(role_id) REFERENCES role (id)
);
CREATE TABLE event (
	id CHAR(32) NOT NULL, 
	envelope_id CHAR(32) NOT NULL, 
	number INTEGER NOT NULL, 
	event_type_id INTEGER NOT NULL, 
	graph_id INTEGER NOT NULL, 
	estimate BIGINT NOT NULL, 
	items BIGINT, origin_id CHAR(32), 
	CONSTRAINT pk_event PRIMARY KEY (id), 
	CONSTRAINT fk_event_envelope_id FOREIGN KEY(envelope_id) REFERENCES envelope (id), 
	CONSTRAINT fk_event_event_type_id FOREIGN KEY(event_type_id) REFERENCES event_type (id), 
	CONSTRAINT fk_event_graph_id FOREIGN KEY(graph_id) REFERENCES graph (id), 
	CONSTRAINT uq_event_envelope_id_number UNIQUE (envelope_id, number)
);
INSERT INTO "event" VALUES('01a206616b297048821458fa9a5ce7b4','01a206616b287204aa9e95453d506968',1,1,1,0,1,NULL);
INSERT INTO "event" VALUES('01a206616b487d03901efa5e616d63cc','01a206616b477ea9bd1847267ac12421',1,1,1,0,1,NULL);
INSERT INTO "event" VALUES('01a206616b57723984df4118eae5285f','01a206616b56712dbe4f6f44c483c7f7',1,1,1,0,1,NULL);
INSERT INTO "event" VALUES('01a206616c2c7694bec35c0eafa32e2b','01a206616c287a8d89164485d889a39a',1,1,1,0,2,NULL);
INSERT INTO "event" VALUES('01a206616c367bf7b633b541695336a4','01a206616c35715c9e4ee7fc15875dc0',1,1,1,0,2,NULL);
INSERT INTO "event" VALUES('01a206616c4f7034955e7768890422e0','01a206616c4d77c5877c6ee67806d492',1,1,1,0,2,NULL);
INSERT INTO "event" VALUES('01a206616d88722c80da51a967641c51','01a206616d877d4485bb8b525fdf6330',1,2,2,0,1,NULL);
INSERT INTO "event" VALUES('01a206616df07c5f8d7dd9abb9f5929c','01a206616def746bba03d26ea82204d5',1,1,1,0,1,NULL);
INSERT INTO "event" VALUES('01a206616efc7c2aa3269136b457efab','01a206616efb73d7b879fcd18cd1a1c9',1,1,1,0,1,NULL);
INSERT INTO "event" VALUES('01a20661709c73b9946401f810dd740a','01a20661709c7375b21dadd35ca76da5',1,3,3,1,1,NULL);
INSERT INTO "event" VALUES('01a2066172b3726a8c50ff4ee87a722b','01a2066172b377ed93468acb2ad978db',1,3,3,1,1,NULL);
INSERT INTO "event" VALUES('9bc83e0f617d5da6b81e38658477ac42','03c0edc71b465579bddbe81f64fdb6d2',1,3,3,0,1,NULL);
INSERT INTO "event" VALUES('01a20661746f7b5ea0c2cc9b90d69bbf','01a20661746b709590d911dd9d17bfee',1,1,1,0,NULL,NULL);
CREATE TABLE event_type (
	id INTEGER NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	immediate_reply BOOLEAN NOT NULL, 
	removed_at DATETIME, bad_items VARCHAR(16) DEFAULT 'envelope' NOT NULL CONSTRAINT ck_event_type_bad_items CHECK (bad_items IN ('envelope', 'isolate')), max_isolated INTEGER DEFAULT '100' NOT NULL, first_name VARCHAR(255) DEFAULT '' NOT NULL, 
	CONSTRAINT pk_event_type PRIMARY KEY (id), 
	CONSTRAINT uq_event_type_name UNIQUE (name)
);
INSERT INTO "event_type" VALUES(1,'notes',0,NULL,'envelope',100,'notes');
INSERT INTO "event_type" VALUES(2,'orders',0,NULL,'envelope',100,'orders');
INSERT INTO "event_type" VALUES(3,'queued',0,NULL,'envelope',100,'queued');
CREATE TABLE failure (
	id INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	envelope_id CHAR(32) NOT NULL, 
	event_id CHAR(32), 
	role_id INTEGER, 
	verb VARCHAR(32) NOT NULL, 
	code VARCHAR(64) NOT NULL, 
	message TEXT NOT NULL, 
	indices JSON, node VARCHAR(255), tracking VARCHAR(16) DEFAULT 'unprocessed' NOT NULL, 
	CONSTRAINT pk_failure PRIMARY KEY (id), 
	CONSTRAINT fk_failure_envelope_id FOREIGN KEY(envelope_id) REFERENCES envelope (id), 
	CONSTRAINT fk_failure_role_id FOREIGN KEY(role_id) REFERENCES role (id)
);
INSERT INTO "failure" VALUES(1,'2026-11-23 03:09:38.219723','01a206616def746bba03d26ea82204d5','01a206616df07c5f8d7dd9abb9f5929c',1,'end_event','refused','the name is missing','[0]','ledger','unprocessed');
INSERT INTO "failure" VALUES(2,'2026-11-23 03:09:38.490014','01a206616efb73d7b879fcd18cd1a1c9','01a206616efc7c2aa3269136b457efab',1,'end_event','error_reply','RuntimeError(''the disk is full'')',NULL,'ledger','unprocessed');
INSERT INTO "failure" VALUES(3,'2026-11-23 03:09:38.892374','01a20661709c7375b21dadd35ca76da5','01a20661709c73b9946401f810dd740a',4,'end_event','refused','the name is missing','[0]','queue','unprocessed');
CREATE TABLE graph (
	id INTEGER NOT NULL, 
	event_type_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_graph PRIMARY KEY (id), 
	CONSTRAINT fk_graph_event_type_id FOREIGN KEY(event_type_id) REFERENCES event_type (id), 
	CONSTRAINT uq_graph_event_type_id_number UNIQUE (event_type_id, number)
);
INSERT INTO "graph" VALUES(1,1,1,'2026-11-23 03:09:31.504362');
INSERT INTO "graph" VALUES(2,2,1,'2026-11-23 03:09:31.504362');
INSERT INTO "graph" VALUES(3,3,1,'2026-11-23 03:09:31.504362');
CREATE TABLE head (
	id INTEGER NOT NULL, 
	position BIGINT NOT NULL, 
	CONSTRAINT pk_head PRIMARY KEY (id), 
	CONSTRAINT ck_head_one_row CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,12);
CREATE TABLE history (
	id INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	subject VARCHAR(32) NOT NULL, 
	subject_id VARCHAR(255) NOT NULL, 
	move VARCHAR(32) NOT NULL, 
	reason TEXT NOT NULL, 
	CONSTRAINT pk_history PRIMARY KEY (id)
);
INSERT INTO "history" VALUES(1,'2026-11-23 03:09:31.504362','configuration','2','applied','add event_type "notes"; add event_type "orders"; add event_type "queued"; add service "ledger"; add service "archive"; add service "w"; add service "queue"; add role "ledger_1"; add role "archive_1"; add role "w_1"; add role "queue_1"; add emitter_profile "everything"; add emitter "emitter_1"; add emitter "emitter_2"');
INSERT INTO "history" VALUES(2,'2026-11-23 03:09:31.504362','configuration','3','password set','password of emitter "emitter_1"');
INSERT INTO "history" VALUES(3,'2026-11-23 03:09:31.504362','configuration','4','password set','password of emitter "emitter_2"');
INSERT INTO "history" VALUES(4,'2026-11-23 03:09:31.504362','configuration','5','password set','password of role "archive_1"');
INSERT INTO "history" VALUES(5,'2026-11-23 03:09:31.504362','configuration','6','password set','password of role "ledger_1"');
INSERT INTO "history" VALUES(6,'2026-11-23 03:09:31.504362','configuration','7','password set','password of role "queue_1"');
INSERT INTO "history" VALUES(7,'2026-11-23 03:09:31.504362','configuration','8','password set','password of role "w_1"');
INSERT INTO "history" VALUES(8,'2026-11-23 03:09:38.219723','delivery','1 01a20661-6def-746b-ba03-d26ea82204d5','parked','end_event: the name is missing');
INSERT INTO "history" VALUES(9,'2026-11-23 03:09:38.892374','delivery','4 01a20661-709c-7375-b21d-add35ca76da5','parked','end_event: the name is missing');
CREATE TABLE input_descriptor (
	id INTEGER NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	content BLOB NOT NULL, 
	mimetype VARCHAR(255), 
	CONSTRAINT pk_input_descriptor PRIMARY KEY (id), 
	CONSTRAINT uq_input_descriptor_name UNIQUE (name)
);
CREATE TABLE node (
	id INTEGER NOT NULL, 
	graph_id INTEGER NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	service_id INTEGER NOT NULL, 
	CONSTRAINT pk_node PRIMARY KEY (id), 
	CONSTRAINT fk_node_graph_id FOREIGN KEY(graph_id) REFERENCES graph (id), 
	CONSTRAINT fk_node_service_id FOREIGN KEY(service_id) REFERENCES service (id), 
	CONSTRAINT uq_node_graph_id_name UNIQUE (graph_id, name)
);
INSERT INTO "node" VALUES(1,1,'ledger',1);
INSERT INTO "node" VALUES(2,1,'archive',2);
INSERT INTO "node" VALUES(3,2,'w',3);
INSERT INTO "node" VALUES(4,2,'ledger',1);
INSERT INTO "node" VALUES(5,3,'queue',4);
CREATE TABLE parked_item (
	role_id INTEGER NOT NULL, 
	event_id CHAR(32) NOT NULL, 
	item_index BIGINT NOT NULL, 
	envelope_id CHAR(32) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	code VARCHAR(64) NOT NULL, 
	cause TEXT NOT NULL, 
	changed_at DATETIME NOT NULL, 
	resumed_as CHAR(32), 
	CONSTRAINT pk_parked_item PRIMARY KEY (role_id, event_id, item_index), 
	CONSTRAINT ck_parked_item_state CHECK (state IN ('parked', 'resumed', 'dropped')), 
	CONSTRAINT fk_parked_item_role_id FOREIGN KEY(role_id) REFERENCES role (id), 
	CONSTRAINT fk_parked_item_event_id FOREIGN KEY(event_id) REFERENCES event (id), 
	CONSTRAINT fk_parked_item_envelope_id FOREIGN KEY(envelope_id) REFERENCES envelope (id)
);
CREATE TABLE person (
	id INTEGER NOT NULL, 
	login VARCHAR(255) NOT NULL, 
	password_hash VARCHAR(255), 
	display_name VARCHAR(255), 
	email VARCHAR(255), 
	removed_at DATETIME, 
	CONSTRAINT pk_person PRIMARY KEY (id), 
	CONSTRAINT uq_person_login UNIQUE (login)
);
CREATE TABLE presence (
	role_id INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	since DATETIME NOT NULL, 
	seen_at DATETIME, 
	work JSON, 
	noted_at DATETIME NOT NULL, 
	CONSTRAINT pk_presence PRIMARY KEY (role_id), 
	CONSTRAINT fk_presence_role_id FOREIGN KEY(role_id) REFERENCES role (id)
);
INSERT INTO "presence" VALUES(1,'present','2026-11-23 03:09:37.383240','2026-11-23 03:09:37.177854',NULL,'2026-11-23 03:09:37.383240');
INSERT INTO "presence" VALUES(2,'absent','2026-11-23 03:09:37.909345','2026-11-23 03:09:37.513313',NULL,'2026-11-23 03:09:37.909345');
INSERT INTO "presence" VALUES(4,'present','2026-11-23 03:09:37.383240','2026-11-23 03:09:37.276381',NULL,'2026-11-23 03:09:37.383240');
CREATE TABLE profile_event_type (
	profile_id INTEGER NOT NULL, 
	event_type_id INTEGER NOT NULL, 
	CONSTRAINT pk_profile_event_type PRIMARY KEY (profile_id, event_type_id), 
	CONSTRAINT fk_profile_event_type_event_type_id FOREIGN KEY(event_type_id) REFERENCES event_type (id), 
	CONSTRAINT fk_profile_event_type_profile_id FOREIGN KEY(profile_id) REFERENCES emitter_profile (id) ON DELETE CASCADE
);
INSERT INTO "profile_event_type" VALUES(1,1);
INSERT INTO "profile_event_type" VALUES(1,2);
INSERT INTO "profile_event_type" VALUES(1,3);
CREATE TABLE registration (
	role_id INTEGER NOT NULL, 
	token_hash BLOB NOT NULL, 
	uri TEXT NOT NULL, 
	registered_at DATETIME NOT NULL, metadata JSON, features JSON, place TEXT, 
	CONSTRAINT pk_registration PRIMARY KEY (role_id), 
	CONSTRAINT fk_registration_role_id FOREIGN KEY(role_id) REFERENCES role (id)
);
INSERT INTO "registration" VALUES(1,X'81729D9B92B06864BABAE6F9565B5386B9F4FD466D36F4726AAD2DCB510DE593','tcp://127.0.0.1:41103','2026-11-23 03:09:37.177921','{"name": "old recipient", "version": 0.1, "api_version": 0.1, "host": "here", "start_date": "2016-01-01T00:00:00", "local_time": "2016-01-01T00:00:00"}','{"clearing": [false, null], "immediate_reply": [false, []]}','file /var/lib/xbus/xbus.db, inode 2171274, machine 7fd9a019820b');
INSERT INTO "registration" VALUES(4,X'F50EC298EB43A7310907A5A8EB4BF253A9AE456E5A0B69B758CCBB7CDD0DA4FE','tcp://127.0.0.1:38543','2026-11-23 03:09:37.276507','{"name": "old recipient", "version": 0.1, "api_version": 0.1, "host": "here", "start_date": "2016-01-01T00:00:00", "local_time": "2016-01-01T00:00:00"}','{"clearing": [false, null], "immediate_reply": [false, []]}','file /var/lib/xbus/xbus.db, inode 2171274, machine 7fd9a019820b');
CREATE TABLE reply (
	event_id CHAR(32) NOT NULL, 
	envelope_id CHAR(32) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	until DATETIME NOT NULL, 
	role_id INTEGER, 
	data BLOB, 
	code VARCHAR(64), 
	cause TEXT, 
	CONSTRAINT pk_reply PRIMARY KEY (event_id), 
	CONSTRAINT ck_reply_state CHECK (state IN ('asked', 'held', 'given', 'failed')), 
	CONSTRAINT fk_reply_event_id FOREIGN KEY(event_id) REFERENCES event (id), 
	CONSTRAINT fk_reply_envelope_id FOREIGN KEY(envelope_id) REFERENCES envelope (id), 
	CONSTRAINT fk_reply_role_id FOREIGN KEY(role_id) REFERENCES role (id)
);
CREATE TABLE role (
	id INTEGER NOT NULL, 
	login VARCHAR(255) NOT NULL, 
	password_hash VARCHAR(255), 
	service_id INTEGER NOT NULL, 
	removed_at DATETIME, ordered BOOLEAN DEFAULT 0 NOT NULL, detached_at DATETIME, absent_minutes FLOAT, parked_minutes FLOAT, 
	CONSTRAINT pk_role PRIMARY KEY (id), 
	CONSTRAINT fk_role_service_id FOREIGN KEY(service_id) REFERENCES service (id), 
	CONSTRAINT uq_role_login UNIQUE (login)
);
INSERT INTO "role" VALUES(1,'ledger_1','$argon2id$v=19$m=19456,t=2,p=1$KwNC27OExxWMmoVRsCfgdw$dFdqnYmPa/PZzGqrnlnUxiWt7oQlp/vVgeSmRBuwcks',1,NULL,0,NULL,NULL,NULL);
INSERT INTO "role" VALUES(2,'archive_1','$argon2id$v=19$m=19456,t=2,p=1$KwNC27OExxWMmoVRsCfgdw$dFdqnYmPa/PZzGqrnlnUxiWt7oQlp/vVgeSmRBuwcks',2,NULL,0,NULL,NULL,NULL);
INSERT INTO "role" VALUES(3,'w_1','$argon2id$v=19$m=19456,t=2,p=1$KwNC27OExxWMmoVRsCfgdw$dFdqnYmPa/PZzGqrnlnUxiWt7oQlp/vVgeSmRBuwcks',3,NULL,0,NULL,NULL,NULL);
INSERT INTO "role" VALUES(4,'queue_1','$argon2id$v=19$m=19456,t=2,p=1$KwNC27OExxWMmoVRsCfgdw$dFdqnYmPa/PZzGqrnlnUxiWt7oQlp/vVgeSmRBuwcks',4,NULL,1,NULL,NULL,NULL);
CREATE TABLE segment (
	event_id CHAR(32) NOT NULL, 
	first_index BIGINT NOT NULL, 
	items INTEGER NOT NULL, 
	data BLOB NOT NULL, 
	hash BLOB NOT NULL, 
	indices JSON, 
	CONSTRAINT pk_segment PRIMARY KEY (event_id, first_index), 
	CONSTRAINT fk_segment_event_id FOREIGN KEY(event_id) REFERENCES event (id)
);
INSERT INTO "segment" VALUES('01a206616b297048821458fa9a5ce7b4',0,1,X'C404646F6E65',X'B741B663C956AA312D5C7FF1B7EA6F2F7CA187D4FABB9399F318BC098AF61D99',NULL);
INSERT INTO "segment" VALUES('01a206616b487d03901efa5e616d63cc',0,1,X'C404646F6E65',X'B741B663C956AA312D5C7FF1B7EA6F2F7CA187D4FABB9399F318BC098AF61D99',NULL);
INSERT INTO "segment" VALUES('01a206616b57723984df4118eae5285f',0,1,X'C404646F6E65',X'B741B663C956AA312D5C7FF1B7EA6F2F7CA187D4FABB9399F318BC098AF61D99',NULL);
INSERT INTO "segment" VALUES('01a206616c2c7694bec35c0eafa32e2b',0,1,X'C4046F776564',X'52FF5930D9345962EC70DC013CDBE94DA26F525A25B48749335E44D453F5294C',NULL);
INSERT INTO "segment" VALUES('01a206616c2c7694bec35c0eafa32e2b',1,1,X'C4057477696365',X'E54650A8EA34EC3623D85549676F2304B4C92CD403486E096E389C730FCB1247',NULL);
INSERT INTO "segment" VALUES('01a206616c367bf7b633b541695336a4',0,1,X'C4046F776564',X'52FF5930D9345962EC70DC013CDBE94DA26F525A25B48749335E44D453F5294C',NULL);
INSERT INTO "segment" VALUES('01a206616c367bf7b633b541695336a4',1,1,X'C4057477696365',X'E54650A8EA34EC3623D85549676F2304B4C92CD403486E096E389C730FCB1247',NULL);
INSERT INTO "segment" VALUES('01a206616c4f7034955e7768890422e0',0,1,X'C4046F776564',X'52FF5930D9345962EC70DC013CDBE94DA26F525A25B48749335E44D453F5294C',NULL);
INSERT INTO "segment" VALUES('01a206616c4f7034955e7768890422e0',1,1,X'C4057477696365',X'E54650A8EA34EC3623D85549676F2304B4C92CD403486E096E389C730FCB1247',NULL);
INSERT INTO "segment" VALUES('01a206616d88722c80da51a967641c51',0,1,X'C40777616974696E67',X'185186C2E6CAA9658EA4E56784068DAFE8A6059FD2D9C4F1C48E22394E2155B4',NULL);
INSERT INTO "segment" VALUES('01a206616df07c5f8d7dd9abb9f5929c',0,1,X'C4067061726B6564',X'12F64B780BF664B36A184A8382E4E526837D674B710E1B8E6D4B6B310D76D9E7',NULL);
INSERT INTO "segment" VALUES('01a206616efc7c2aa3269136b457efab',0,1,X'C4057265747279',X'70C161B4EDFAD5906D2B35EC4E354A785AD8D7BDCCAD224459C86454E20749F6',NULL);
INSERT INTO "segment" VALUES('01a20661709c73b9946401f810dd740a',0,1,X'C4056669727374',X'FC29A73897464BFBA69A054882D8B7AA2A413DB189B8BC3C0FE6018E9036EC53',NULL);
INSERT INTO "segment" VALUES('01a2066172b3726a8c50ff4ee87a722b',0,1,X'C4067365636F6E64',X'D7BFA707095BE20BD044B2C35D9CC9760307BA6D1C6AC4339A0B82F37B904130',NULL);
INSERT INTO "segment" VALUES('9bc83e0f617d5da6b81e38658477ac42',0,1,X'C4056B65796564',X'B5A4E3DFB65479B5684B547570467FC8BDADCFC0FC7FB6CB2E0EFEDFF7660232',NULL);
INSERT INTO "segment" VALUES('01a20661746f7b5ea0c2cc9b90d69bbf',0,1,X'C4046F70656E',X'3984D733DC3A09DE5ABE01916065A1923879AD720AFB5B9643E8603E36D89D6E',NULL);
INSERT INTO "segment" VALUES('01a20661746f7b5ea0c2cc9b90d69bbf',1,1,X'C4046D6F7265',X'60ED9BFA996CEB3F76B5008F8E50C25F7513DCF2291EC16295497CED1139FCE8',NULL);
CREATE TABLE service (
	id INTEGER NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	removed_at DATETIME, failures VARCHAR(16) DEFAULT 'shared' NOT NULL CONSTRAINT ck_service_failures CHECK (failures IN ('shared', 'own')), attempts INTEGER, first_delay FLOAT, longest_delay FLOAT, jitter FLOAT, "key" VARCHAR(300) DEFAULT '' NOT NULL, 
	CONSTRAINT pk_service PRIMARY KEY (id), 
	CONSTRAINT ck_service_kind CHECK (kind IN ('worker', 'consumer')), 
	CONSTRAINT uq_service_name UNIQUE (name)
);
INSERT INTO "service" VALUES(1,'ledger','consumer',NULL,'shared',NULL,NULL,NULL,NULL,'ledger');
INSERT INTO "service" VALUES(2,'archive','consumer',NULL,'shared',NULL,NULL,NULL,NULL,'archive');
INSERT INTO "service" VALUES(3,'w','worker',NULL,'shared',NULL,NULL,NULL,NULL,'w');
INSERT INTO "service" VALUES(4,'queue','consumer',NULL,'shared',NULL,NULL,NULL,NULL,'queue');
CREATE TABLE session (
	token_hash BLOB NOT NULL, 
	emitter_id INTEGER, 
	role_id INTEGER, 
	expires_at DATETIME NOT NULL, 
	CONSTRAINT pk_session PRIMARY KEY (token_hash), 
	CONSTRAINT ck_session_one_owner CHECK ((emitter_id IS NULL) <> (role_id IS NULL)), 
	CONSTRAINT fk_session_emitter_id FOREIGN KEY(emitter_id) REFERENCES emitter (id), 
	CONSTRAINT fk_session_role_id FOREIGN KEY(role_id) REFERENCES role (id)
);
INSERT INTO "session" VALUES(X'287D80F94D67076137B00C2204B52C161C6DAE640168ADD7BD53C89BCAEA1AAB',1,NULL,'2026-11-23 04:09:37.104765');
INSERT INTO "session" VALUES(X'81729D9B92B06864BABAE6F9565B5386B9F4FD466D36F4726AAD2DCB510DE593',NULL,1,'2026-11-23 04:09:37.173508');
INSERT INTO "session" VALUES(X'F50EC298EB43A7310907A5A8EB4BF253A9AE456E5A0B69B758CCBB7CDD0DA4FE',NULL,4,'2026-11-23 04:09:37.265711');
INSERT INTO "session" VALUES(X'AF08E352712C75DB519A2D9804DA81C03BE870CE65A074F9E27CA10A1E3586EA',NULL,2,'2026-11-23 04:09:37.424577');
CREATE TABLE writer (
	name VARCHAR(64) NOT NULL, 
	epoch INTEGER NOT NULL, 
	group_number BIGINT NOT NULL, stored_bytes BIGINT DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_writer PRIMARY KEY (name)
);
INSERT INTO "writer" VALUES('broker',1,68,115);
CREATE INDEX ix_history_subject ON history (subject, subject_id);
CREATE INDEX ix_node_graph_id ON node (graph_id);
CREATE INDEX ix_failure_envelope_id ON failure (envelope_id);
CREATE INDEX ix_event_origin_id ON event (origin_id) WHERE origin_id IS NOT NULL;
CREATE INDEX ix_reply_state ON reply (state);
CREATE INDEX ix_failure_tracking ON failure (tracking);
CREATE INDEX ix_envelope_cancelled ON envelope (closed_at) WHERE state = 'cancelled' AND pruned_at IS NULL;
CREATE INDEX ix_reply_envelope_id ON reply (envelope_id);
CREATE INDEX ix_delivery_role_id ON delivery (role_id, position);
CREATE INDEX ix_delivery_envelope_id ON delivery (envelope_id);
CREATE INDEX ix_delivery_ordering_key ON delivery (role_id, ordering_key, position) WHERE ordering_key IS NOT NULL;
CREATE INDEX ix_parked_item_envelope_id ON parked_item (envelope_id);
CREATE INDEX ix_parked_item_event_id ON parked_item (event_id);
CREATE UNIQUE INDEX ix_bulk_attempt_live ON bulk_attempt (event_id, node_id) WHERE state IN ('building', 'ready');
CREATE INDEX ix_bulk_attempt_event_id ON bulk_attempt (event_id);
CREATE INDEX ix_bulk_attempt_state ON bulk_attempt (state);
CREATE INDEX ix_archive_run_open ON archive_run (ended_at) WHERE ended_at IS NULL;
CREATE INDEX ix_archive_file_event_type_id_last_position ON archive_file (event_type_id, last_position);
CREATE INDEX ix_archive_file_state ON archive_file (state);
CREATE INDEX ix_archived_envelope_due ON archived_envelope (archived_at) WHERE removed_at IS NULL;
CREATE INDEX ix_archived_event_file_id ON archived_event (file_id);
CREATE INDEX ix_envelope_opened_at ON envelope (opened_at, id);
CREATE INDEX ix_envelope_open ON envelope (state, opened_at) WHERE state = 'open';
CREATE INDEX ix_parked_item_state ON parked_item (state, role_id, changed_at);
CREATE INDEX ix_delivery_parked ON delivery (role_id, changed_at) WHERE state = 'parked';
CREATE INDEX ix_delivery_service_id ON delivery (service_id, changed_at) WHERE service_id IS NOT NULL;
CREATE INDEX ix_correction_event_id ON correction (event_id, role_id);
CREATE INDEX ix_correction_for_all ON correction (id) WHERE role_id IS NULL;
CREATE INDEX ix_contents_block ON contents (block);
CREATE UNIQUE INDEX ix_service_key ON service ("key");
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('correction',0);
COMMIT;
PRAGMA application_id = 0;
PRAGMA user_version = 0;
