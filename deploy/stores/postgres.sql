-- Run as the owner of the database.  The memory server connects as memory_writer.
CREATE ROLE memory_writer LOGIN PASSWORD 'WRITE_SECRET';
CREATE ROLE memory_reader LOGIN PASSWORD 'READ_SECRET';
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
CREATE SCHEMA memory AUTHORIZATION memory_writer;
GRANT USAGE ON SCHEMA memory TO memory_reader;
ALTER DEFAULT PRIVILEGES FOR ROLE memory_writer IN SCHEMA memory
  GRANT SELECT ON TABLES TO memory_reader;
