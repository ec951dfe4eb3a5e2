select {outbox_bump}();
