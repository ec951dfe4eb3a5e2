//! Destinations on EventBridge, SQS, and SNS, and the subscription to SQS.
