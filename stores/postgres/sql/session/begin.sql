begin;
