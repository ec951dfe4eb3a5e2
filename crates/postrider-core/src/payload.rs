//! Payloads: JSON kept byte for byte, or opaque bytes.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::{Error, ErrorKind, Result};

/// What an event says. JSON text is kept exactly as it was written, so that a signature over it
/// stays valid and big integers stay exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Valid JSON text in UTF-8, kept byte for byte.
    Json(Bytes),
    /// Opaque bytes: Avro, Protobuf, text, ciphertext.
    Bytes(Bytes),
    /// Erased on request. The event still settles and its key flows; there is nothing to deliver.
    Erased,
}

impl Payload {
    /// JSON text, checked to parse.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] with the line and column at which it stops being JSON.
    pub fn json(text: impl Into<String>) -> Result<Payload> {
        let text = text.into();
        if let Err(e) = serde_json::from_str::<&serde_json::value::RawValue>(&text) {
            return Err(Error::new(ErrorKind::Invalid, "payload")
                .message(format!("the payload is not JSON: {e}")));
        }
        Ok(Payload::Json(Bytes::from(text)))
    }

    /// Opaque bytes.
    pub fn bytes(bytes: impl Into<Bytes>) -> Payload {
        Payload::Bytes(bytes.into())
    }

    /// The bytes as they are stored and sent; empty when erased.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Payload::Json(bytes) | Payload::Bytes(bytes) => bytes,
            Payload::Erased => &[],
        }
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// SHA-256 over the bytes: how an inbox tells a duplicate from another event with the same id.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.as_bytes()).into()
    }
}
