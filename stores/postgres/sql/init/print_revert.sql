-- One migration is taken back, in one transaction: all of it, or nothing.
begin;
