//! Keys of Standard Webhooks: `whsec_…` signs and verifies, `whsk_…` signs, `whpk_…` verifies.
//!
//! Invariant: nothing here shows a key: not `Debug`, not an error.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use postrider_core::{Error, ErrorKind, Result};
use ring::hmac;
use ring::signature::{Ed25519KeyPair, KeyPair};

/// Base64 with or without its padding: people copy keys by hand.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const SYMMETRIC: &str = "whsec_";
const PRIVATE: &str = "whsk_";
const PUBLIC: &str = "whpk_";
/// Bytes of a symmetric secret, as Standard Webhooks 1.0.0 has them.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Bytes of a public key, and of the seed of a private one.
const ED25519_BYTES: usize = 32;

/// A key that signs: a symmetric secret `whsec_…` of 24 to 64 bytes, or an ed25519 private key
/// `whsk_…` (its seed of 32 bytes, or seed and public key, 64 bytes), in base64.
///
/// ```
/// use postrider_webhook::SigningKey;
/// let key: SigningKey = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?;
/// assert_eq!(format!("{key:?}"), "SigningKey(whsec_***)");
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Clone)]
pub struct SigningKey(pub(crate) Signing);

#[derive(Clone)]
pub(crate) enum Signing {
    Symmetric(hmac::Key),
    Ed25519(Arc<Ed25519KeyPair>),
}

/// A key that verifies: a symmetric secret `whsec_…`, or an ed25519 public key `whpk_…`.
#[derive(Clone)]
pub struct VerifyingKey(pub(crate) Verifying);

#[derive(Clone)]
pub(crate) enum Verifying {
    Symmetric(hmac::Key),
    Ed25519([u8; ED25519_BYTES]),
}

impl SigningKey {
    /// The key with which a receiver verifies. Of a symmetric secret it is the same secret.
    pub fn verifying_key(&self) -> VerifyingKey {
        VerifyingKey(match &self.0 {
            Signing::Symmetric(key) => Verifying::Symmetric(key.clone()),
            Signing::Ed25519(pair) => {
                let mut public = [0; ED25519_BYTES];
                public.copy_from_slice(pair.public_key().as_ref());
                Verifying::Ed25519(public)
            }
        })
    }

    /// The public key as text, `whpk_…`, to give to receivers; `None` for a symmetric secret, which
    /// is never shown.
    pub fn public_key(&self) -> Option<String> {
        match &self.0 {
            Signing::Symmetric(_) => None,
            Signing::Ed25519(pair) => {
                Some(format!("{PUBLIC}{}", BASE64.encode(pair.public_key().as_ref())))
            }
        }
    }
}

impl FromStr for SigningKey {
    type Err = Error;

    /// # Errors
    /// `Config`, without the key, if the text is no key or has the wrong length.
    fn from_str(text: &str) -> Result<SigningKey> {
        if let Some(secret) = text.strip_prefix(SYMMETRIC) {
            return symmetric(secret).map(|key| SigningKey(Signing::Symmetric(key)));
        }
        let Some(private) = text.strip_prefix(PRIVATE) else {
            return Err(unusable("a signing key begins with whsec_ or whsk_"));
        };
        let bytes = decode(private)?;
        let pair = match bytes.len() {
            ED25519_BYTES => Ed25519KeyPair::from_seed_unchecked(&bytes),
            64 => {
                let (seed, public) = bytes.split_at(ED25519_BYTES);
                Ed25519KeyPair::from_seed_and_public_key(seed, public)
            }
            other => {
                return Err(unusable(format!("an ed25519 key has 32 or 64 bytes, not {other}")));
            }
        };
        let pair = pair.map_err(|_| unusable("the two halves of the ed25519 key do not match"))?;
        Ok(SigningKey(Signing::Ed25519(Arc::new(pair))))
    }
}

impl FromStr for VerifyingKey {
    type Err = Error;

    /// # Errors
    /// `Config`, without the key, if the text is no key or has the wrong length.
    fn from_str(text: &str) -> Result<VerifyingKey> {
        if let Some(secret) = text.strip_prefix(SYMMETRIC) {
            return symmetric(secret).map(|key| VerifyingKey(Verifying::Symmetric(key)));
        }
        let Some(public) = text.strip_prefix(PUBLIC) else {
            return Err(unusable("a verifying key begins with whsec_ or whpk_"));
        };
        let bytes = decode(public)?;
        let public = bytes.as_slice().try_into();
        public.map(|key| VerifyingKey(Verifying::Ed25519(key))).map_err(|_| {
            unusable(format!("an ed25519 public key has 32 bytes, not {}", bytes.len()))
        })
    }
}

fn symmetric(secret: &str) -> Result<hmac::Key> {
    let bytes = decode(secret)?;
    if !SECRET_BYTES.contains(&bytes.len()) {
        return Err(unusable(format!("a secret has 24 to 64 bytes, not {}", bytes.len())));
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

fn decode(text: &str) -> Result<Vec<u8>> {
    // The library's error names a byte of the secret, so it is not passed on.
    BASE64.decode(text).map_err(|_| unusable("what follows the prefix is not base64"))
}

fn unusable(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, "read webhook key").message(message)
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.0 {
            Signing::Symmetric(_) => SYMMETRIC,
            Signing::Ed25519(_) => PRIVATE,
        };
        write!(f, "SigningKey({prefix}***)")
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.0 {
            Verifying::Symmetric(_) => SYMMETRIC,
            Verifying::Ed25519(_) => PUBLIC,
        };
        write!(f, "VerifyingKey({prefix}***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_and_prefixes_are_checked() {
        let text = |prefix: &str, length| format!("{prefix}{}", BASE64.encode(vec![7; length]));
        for length in [24, 32, 64] {
            assert!(text(SYMMETRIC, length).parse::<SigningKey>().is_ok());
        }
        for bad in [text(SYMMETRIC, 23), text(SYMMETRIC, 65), text(PRIVATE, 31), text("", 32)] {
            assert_eq!(bad.parse::<SigningKey>().unwrap_err().kind(), ErrorKind::Config);
        }
        assert!(text(PRIVATE, 32).parse::<SigningKey>().is_ok());
        let halves_that_do_not_match = text(PRIVATE, 64);
        assert!(halves_that_do_not_match.parse::<SigningKey>().is_err());
        assert!(text(PUBLIC, 32).parse::<SigningKey>().is_err(), "a public key does not sign");
        assert!(text(PRIVATE, 32).parse::<VerifyingKey>().is_err(), "a private key stays home");
    }

    #[test]
    fn a_private_key_knows_its_public_one() {
        let seed: Vec<u8> = (0..32).collect();
        let key: SigningKey = format!("whsk_{}", BASE64.encode(seed)).parse().unwrap();
        let public = key.public_key().unwrap();
        assert_eq!(public, "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=");
        assert!(public.parse::<VerifyingKey>().is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever is refused, and whatever is accepted, is not shown.
        #[test]
        fn a_key_is_never_shown(prefix in "(whsec_|whsk_|whpk_)?", rest in "[A-Za-z0-9+/=!]{8,80}") {
            let text = format!("{prefix}{rest}");
            let shown = match text.parse::<SigningKey>() {
                Ok(key) => format!("{key:?}"),
                Err(error) => format!("{error} {error:?}"),
            };
            prop_assert!(!shown.contains(&rest), "{}", shown);
            let shown = match text.parse::<VerifyingKey>() {
                Ok(key) => format!("{key:?}"),
                Err(error) => format!("{error} {error:?}"),
            };
            prop_assert!(!shown.contains(&rest), "{}", shown);
        }
    }
}
