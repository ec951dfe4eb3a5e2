//! Addresses that flags give: as they are, or as a reference where they say who we are.
//!
//! Invariant: no secret is taken from a command line, which others can read.

use postrider_config::{Environment, SecretRef};

use crate::failure::Failure;

/// The schemes of servers that may be told who we are by an address.
const MAY_HOLD: [&str; 3] = ["nats", "tls", "kafka"];

/// The address of a flag.
///
/// # Errors
/// A configuration failure: it holds a secret, or the reference leads nowhere.
pub(crate) fn address(
    flag: &str,
    text: &str,
    environment: &Environment,
) -> Result<String, Failure> {
    if let Some(reference) = SecretRef::parse(text) {
        let (secret, _) = reference
            .resolve(environment)
            .map_err(|why| Failure::config(format!("{flag} {reference}: {why}")))?;
        return Ok(secret.expose().to_owned());
    }
    let (scheme, rest) = text.split_once("://").unwrap_or((text, ""));
    let may_hold = MAY_HOLD.iter().any(|known| scheme.eq_ignore_ascii_case(known));
    if may_hold && rest.split('/').next().is_some_and(|server| server.contains('@')) {
        return Err(Failure::config(format!("{flag} holds a token or a password")).advice(format!(
            "Nothing was started. Write {flag} env:NAME or {flag} file:PATH, and keep the whole \
             address there; others can read a command line."
        )));
    }
    Ok(text.to_owned())
}
