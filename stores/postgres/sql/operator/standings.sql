-- Every destination.
select d.id, d.kind, d.definition, d.version, d.state
from {outbox_destination} d;
