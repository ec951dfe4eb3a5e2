-- A page is one plan for all cursors, in which the numbers that were given decide which tables are opened. Planned
-- anew for each, it would look cheaper to the planner, since fewer tables are left to look at, and cost milliseconds.
set plan_cache_mode = force_generic_plan;
