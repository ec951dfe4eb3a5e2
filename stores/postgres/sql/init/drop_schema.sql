drop schema if exists {schema} restrict
