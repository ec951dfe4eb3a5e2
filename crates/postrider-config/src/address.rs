//! Addresses of stores, queues, and endpoints: written out, or as a reference where they hold a
//! secret.
//!
//! Invariant: an address that is written out has no password in it, and `Debug` hides the rest that
//! might be one.

use std::fmt;

use postrider_core::TargetUrl;

use crate::environment::Environment;
use crate::field::Scalar;
use crate::key::{Json, Key, Leaf};
use crate::node::Node;
use crate::reading::Complaint;
use crate::secret::{self, Secret, SecretRef};

/// Query parameters that carry secrets, in any spelling of case.
const SECRET_PARAMETERS: [&str; 16] = [
    "access_key",
    "access_token",
    "api_key",
    "apikey",
    "auth",
    "auth_token",
    "jwt",
    "key",
    "passwd",
    "password",
    "pwd",
    "secret",
    "sig",
    "signature",
    "sslpassword",
    "token",
];

/// An address.
#[derive(Clone, PartialEq, Eq)]
pub enum Address {
    /// Written out.
    Literal(String),
    /// In a variable or a file, because it holds a secret.
    Reference(SecretRef),
}

impl Address {
    /// The address, if it is written out.
    pub fn literal(&self) -> Option<&str> {
        match self {
            Address::Literal(text) => Some(text),
            Address::Reference(_) => None,
        }
    }

    /// What stands before `://`, in lower case, if it is written out.
    pub fn scheme(&self) -> Option<String> {
        Some(self.literal()?.split("://").next()?.to_ascii_lowercase())
    }

    /// The whole address, read from where it is, with a warning if others can read its file.
    ///
    /// # Errors
    /// As [`SecretRef::resolve`].
    pub fn resolve(&self, environment: &Environment) -> Result<(Secret, Option<String>), String> {
        match self {
            Address::Literal(text) => Ok((Secret::new(text.clone()), None)),
            Address::Reference(reference) => reference.resolve(environment),
        }
    }
}

/// Whether requests go there.
fn is_http(text: &str) -> bool {
    let scheme = text.split("://").next().unwrap_or_default();
    scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http")
}

/// Schemes whose paths name files and databases, and are no secrets.
const OPEN_PATHS: [&str; 14] = [
    "dynamodb",
    "eventbridge",
    "file",
    "kafka",
    "local",
    "mariadb",
    "mysql",
    "nats",
    "postgres",
    "postgresql",
    "sns",
    "sqlite",
    "sqs",
    "tls",
];

fn has_open_path(text: &str) -> bool {
    let scheme = text.split("://").next().unwrap_or_default().to_ascii_lowercase();
    OPEN_PATHS.contains(&scheme.as_str())
}

/// Scheme and host: partners put secrets into the paths of their hooks.
fn host_only(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or((text, ""));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let tail = &rest[authority.len()..];
    let tail = if matches!(tail, "" | "/") { tail } else { "/***" };
    format!("{scheme}://{host}{tail}")
}

/// As it may be seen: without user names and the values of a query, and the host alone of what is
/// neither a file nor a database.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Reference(reference) => reference.fmt(f),
            Address::Literal(text) if !has_open_path(text) => f.write_str(&host_only(text)),
            Address::Literal(text) => match text.parse::<TargetUrl>() {
                Ok(url) => url.fmt(f),
                Err(_) => f.write_str("***"),
            },
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Scalar for Address {
    const LEAF: Leaf = Leaf {
        word: "address",
        expected: "an address, like \"sqlite://shop.db\", or a reference to one, like \"env:NAME\"",
        example: "env:NAME",
        json: Json::Text(
            "^([A-Za-z][A-Za-z0-9+.-]*(://.*)?|env:[A-Za-z_][A-Za-z0-9_]*|file:/?[^/].*)$",
        ),
        secret: true,
    };

    fn parse(node: &Node, key: &Key) -> Option<Result<Address, Complaint>> {
        let text = node.text()?;
        if let Some(reference) = SecretRef::parse(text) {
            return Some(Ok(Address::Reference(reference)));
        }
        let outside = secret::of_variable(node);
        Some(match check(text, key) {
            Ok(()) => Ok(Address::Literal(text.to_owned())),
            // A password in a variable of ours is where it belongs; the variable is the reference.
            Err(Refusal::Secret(_)) if outside.is_some() => {
                Ok(outside.map_or_else(Address::placeholder, Address::Reference))
            }
            Err(Refusal::Secret(complaint) | Refusal::Form(complaint)) => Err(complaint),
        })
    }

    fn shown(&self) -> String {
        self.to_string()
    }

    fn exact(&self) -> String {
        match self {
            Address::Literal(text) => text.clone(),
            Address::Reference(reference) => reference.to_string(),
        }
    }

    fn placeholder() -> Address {
        Address::Literal(String::new())
    }

    fn secret(&self) -> Option<&SecretRef> {
        match self {
            Address::Literal(_) => None,
            Address::Reference(reference) => Some(reference),
        }
    }

    fn is_open(&self) -> bool {
        self.literal().is_none_or(|text| self.to_string() == text)
    }
}

enum Refusal {
    Form(Complaint),
    Secret(Complaint),
}

fn check(text: &str, key: &Key) -> Result<(), Refusal> {
    let form =
        |message: String, advice: String| Err(Refusal::Form(Complaint::new(message, advice)));
    let name = key.name;
    if text.starts_with("env:") || (text.starts_with("file:") && !text.starts_with("file://")) {
        return form(
            format!("`{name}` is neither an address nor a reference to one"),
            "a name of letters, digits, and _ follows env:, and a path follows file:".into(),
        );
    }
    if text.parse::<TargetUrl>().is_err() || text.chars().any(char::is_control) {
        return form(
            format!(
                "`{name}` is no address: it begins with a scheme and has no control characters"
            ),
            format!("write {name} = {}", key.shown_example()),
        );
    }
    if !text.contains("://") {
        return form(
            format!("`{name}` has no `://`; a path is written with its scheme in front"),
            format!("write {name} = {}", key.shown_example()),
        );
    }
    match secret_in(text) {
        None => Ok(()),
        Some(what) => Err(Refusal::Secret(Complaint::new(
            format!("`{name}` holds {what}; secrets stand in the environment or in a file"),
            format!(
                "move the whole address there and write {name} = \"env:NAME\" or \
                 \"file:/run/secrets/name\"; it is not shown here"
            ),
        ))),
    }
}

/// What in an address is a secret.
fn secret_in(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("://")?;
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = path.split('/').next().unwrap_or_default();
    if is_http(text) && authority.contains('@') {
        return Some("a user name or a password".into());
    }
    // Of NATS, a name alone is a token.
    let scheme = text.split("://").next().unwrap_or_default().to_ascii_lowercase();
    // Its endpoint stands in the query. Who we are is said elsewhere, so nothing has an `@` there.
    if scheme == "dynamodb" && rest.contains('@') {
        return Some("a user name or a password".into());
    }
    if matches!(&*scheme, "kafka" | "nats" | "tls" | "sqs" | "sns" | "eventbridge")
        && authority.contains('@')
    {
        return Some("a token or a password".into());
    }
    // A path may have an `@` of its own; before the first slash it ends the user's part.
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    if user.and_then(|user| user.split_once(':')).is_some_and(|(_, password)| !password.is_empty())
    {
        return Some("a password".into());
    }
    let names = query.split(['&', '#']).filter_map(|pair| pair.split_once('='));
    let mut secrets = names.filter(|(name, value)| {
        let name = name.to_ascii_lowercase().replace('-', "_");
        !value.is_empty() && SECRET_PARAMETERS.contains(&name.as_str())
    });
    secrets.next().map(|(name, _)| format!("a secret, the parameter `{}`", name.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R107: passwords do not stand in the file.
    #[test]
    fn secrets_in_addresses_are_found() {
        for text in [
            "postgres://shop:hunter2@db/orders",
            "postgres://db/orders?password=hunter2",
            "dynamodb://?endpoint=http://u:hunter2@db:8000",
            "https://hooks.example/in?Api-Key=hunter2",
            "https://hunter2@hooks.example/in",
            "mysql://u:a:b@c@d/x",
            "nats://hunter2@nats-1:4222",
        ] {
            assert!(secret_in(text).is_some(), "{text}");
        }
        for text in [
            "sqlite:///var/lib/shop.db",
            "postgres://shop@db/orders?sslmode=require",
            "local:///var/a:b@c/q.db",
            "https://[::1]:8443/in",
        ] {
            assert_eq!(secret_in(text), None, "{text}");
        }
    }

    #[test]
    fn of_requests_the_host_is_shown() {
        for (text, shown) in [
            ("https://hooks.example/T0/hunter2", "https://hooks.example/***"),
            ("http://127.0.0.1:8000?a=hunter2", "http://127.0.0.1:8000/***"),
            ("https://hooks.example/", "https://hooks.example/"),
            ("postgres://shop@db/orders", "postgres://***@db/orders"),
            ("sqlite://shop.db", "sqlite://shop.db"),
        ] {
            assert_eq!(Address::Literal(text.into()).to_string(), shown);
        }
    }
}
