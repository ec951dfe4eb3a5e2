//! Signatures of Standard Webhooks 1.0.0: over `id.timestamp.body`, as a list in one header.
//!
//! Invariant: a comparison takes the same time whatever the signature is, and an id with a dot, which
//! would let a part of the id pass for a timestamp, is not accepted.

use std::fmt;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::hmac;
use ring::signature::{ED25519, UnparsedPublicKey};

use crate::key::{Signing, SigningKey, Verifying, VerifyingKey};

/// The header with the event's id, the same for every attempt.
pub const ID: &str = "webhook-id";
/// The header with the time of the attempt, in seconds since 1970.
pub const TIMESTAMP: &str = "webhook-timestamp";
/// The header with the signatures, separated by spaces.
pub const SIGNATURE: &str = "webhook-signature";

/// How far a timestamp may lie from the receiver's clock, either way: what Standard Webhooks advises.
pub const TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// Signatures that are looked at. More cost the receiver time and help nobody.
const SIGNATURES_MAX: usize = 32;
const ID_BYTES_MAX: usize = 256;
const TIMESTAMP_DIGITS_MAX: usize = 12;

/// The value of the signature header: one signature per key, in the order of the keys.
///
/// ```
/// use postrider_webhook::{SigningKey, sign};
/// let key: SigningKey = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?;
/// let body = br#"{"test": 2432232314}"#;
/// assert_eq!(
///     sign(&[key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body),
///     "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
/// );
/// # Ok::<(), postrider_core::Error>(())
/// ```
pub fn sign(keys: &[SigningKey], id: &str, timestamp: u64, body: &[u8]) -> String {
    let timestamp = timestamp.to_string();
    let mut header = String::with_capacity(96 * keys.len());
    // Only ed25519 needs the message in one piece; it is put together once, when first needed.
    let mut whole: Option<Vec<u8>> = None;
    for key in keys {
        if !header.is_empty() {
            header.push(' ');
        }
        match &key.0 {
            Signing::Symmetric(key) => {
                let mut context = hmac::Context::with_key(key);
                for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
                    context.update(part);
                }
                header.push_str("v1,");
                BASE64.encode_string(context.sign(), &mut header);
            }
            Signing::Ed25519(pair) => {
                let message = whole.get_or_insert_with(|| message(id, &timestamp, body));
                header.push_str("v1a,");
                BASE64.encode_string(pair.sign(message), &mut header);
            }
        }
    }
    header
}

fn message(id: &str, timestamp: &str, body: &[u8]) -> Vec<u8> {
    [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat()
}

/// The three headers of a signed request, as they were received.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// `webhook-id`
    pub id: &'a str,
    /// `webhook-timestamp`
    pub timestamp: &'a str,
    /// `webhook-signature`
    pub signature: &'a str,
}

/// Why a request is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unverified {
    /// A header is missing, comes twice, or cannot be read; its name.
    Header(&'static str),
    /// The timestamp lies too far in the past: an old request, sent again by somebody, or a slow clock.
    TooOld,
    /// The timestamp lies too far in the future.
    TooNew,
    /// No signature fits any of the keys.
    NoMatch,
}

impl fmt::Display for Unverified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unverified::Header(name) => write!(f, "the header {name} is missing or cannot be read"),
            Unverified::TooOld => f.write_str("the webhook's timestamp is too old"),
            Unverified::TooNew => f.write_str("the webhook's timestamp lies in the future"),
            Unverified::NoMatch => f.write_str("no signature of the webhook fits any key"),
        }
    }
}

impl std::error::Error for Unverified {}

/// Verifies a signed request against any of several keys, and answers with its time. The body is the
/// request's, byte for byte: verify before parsing.
///
/// # Errors
/// Why it is not accepted. Without keys nothing is.
pub fn verify(
    signed: Signed<'_>,
    body: &[u8],
    keys: &[VerifyingKey],
    tolerance: Duration,
    now: SystemTime,
) -> Result<SystemTime, Unverified> {
    let id = signed.id.as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'.';
    if id.is_empty() || id.len() > ID_BYTES_MAX || !id.iter().all(is_plain) {
        return Err(Unverified::Header(ID));
    }
    let time = read_time(signed.timestamp).ok_or(Unverified::Header(TIMESTAMP))?;
    if now.duration_since(time).is_ok_and(|age| age > tolerance) {
        return Err(Unverified::TooOld);
    }
    if time.duration_since(now).is_ok_and(|ahead| ahead > tolerance) {
        return Err(Unverified::TooNew);
    }
    let signatures: Vec<&str> =
        signed.signature.split(' ').filter(|part| !part.is_empty()).collect();
    if signatures.is_empty() || signatures.len() > SIGNATURES_MAX {
        return Err(Unverified::Header(SIGNATURE));
    }
    let message = message(signed.id, signed.timestamp, body);
    let fits = signatures.iter().any(|signature| fits_any(signature, &message, keys));
    if fits { Ok(time) } else { Err(Unverified::NoMatch) }
}

/// Digits only: a sign, a fraction, or a blank would give one moment two spellings.
fn read_time(text: &str) -> Option<SystemTime> {
    let digits = (1..=TIMESTAMP_DIGITS_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        return None;
    }
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(text.parse().ok()?))
}

/// Kinds that are not known are passed over: a sender may already sign with a newer one as well.
fn fits_any(signature: &str, message: &[u8], keys: &[VerifyingKey]) -> bool {
    let Some((kind, encoded)) = signature.split_once(',') else {
        return false;
    };
    if !matches!(kind, "v1" | "v1a") {
        return false;
    }
    let Ok(bytes) = BASE64.decode(encoded) else {
        return false;
    };
    keys.iter().any(|key| match (&key.0, kind) {
        (Verifying::Symmetric(key), "v1") => hmac::verify(key, message, &bytes).is_ok(),
        (Verifying::Ed25519(key), "v1a") => {
            UnparsedPublicKey::new(&ED25519, key).verify(message, &bytes).is_ok()
        }
        _ => false,
    })
}
