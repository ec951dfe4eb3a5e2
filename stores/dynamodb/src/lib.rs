//! The DynamoDB store.
