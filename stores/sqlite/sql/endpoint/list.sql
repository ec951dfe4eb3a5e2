select destination, topic from outbox_endpoint order by destination, topic;
