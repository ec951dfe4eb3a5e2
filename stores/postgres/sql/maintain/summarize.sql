select {outbox_summarize}();
