-- Fails like the look for the seal, where COMMIT would be a silent ROLLBACK or a mere warning. Then as for one.
close postrider_group;
commit and chain;
