select {outbox_detach}();
