update {outbox_meta} set value = '$source$' where key = 'source';
