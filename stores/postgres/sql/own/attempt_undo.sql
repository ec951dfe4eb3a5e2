-- Takes the mark back that was tried.
rollback;
