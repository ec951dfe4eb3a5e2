select {outbox_ahead}();
