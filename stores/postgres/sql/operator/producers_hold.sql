-- Every producer has ended or not begun: whoever has drawn a number holds a lock that conflicts with this one.
lock table {outbox} in share mode;
