-- What is checked at the commit only is checked now.
set constraints all immediate;
