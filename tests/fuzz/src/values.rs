//! Single values, as people write them in arguments and files: spans, sizes, times, ids, names, and addresses.

use std::fmt::Display;
use std::str::FromStr;

use postrider_config::{SecretRef, Size, duration};
use postrider_core::operate::listing;
use postrider_core::{DestinationId, EventId, HandlerName, RelayId, TargetUrl, Timestamp};

/// One text as each of them: what is read is written and read again the same.
pub fn values(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match duration::parse(text) {
        Ok(span) => assert_eq!(duration::parse(&duration::print(span)), Ok(span), "{text:?}"),
        Err(why) => told(&why),
    }
    again::<Size>(text);
    again::<EventId>(text);
    if let Some(time) = again::<Timestamp>(text) {
        same_moment(text, time);
    }
    for refused in [
        DestinationId::new(text).map(|name| assert_eq!(name.as_str(), text)).err(),
        HandlerName::new(text).map(|name| assert_eq!(name.as_str(), text)).err(),
        RelayId::new(text).map(|name| assert_eq!(name.as_str(), text)).err(),
    ] {
        refused.iter().for_each(|why| told(&why.to_string()));
    }
    if let Some(secret) = SecretRef::parse(text) {
        assert_eq!(SecretRef::parse(&secret.to_string()), Some(secret));
    }
    if let Ok(Some((name, number))) = listing::parts_after(Some(text), "list") {
        assert!(text.starts_with(name) && number >= 0);
    }
    if let Ok(url) = text.parse::<TargetUrl>() {
        address(&url, text);
    }
}

/// Reads, writes, and reads again.
fn again<T: FromStr<Err: Display> + Display + PartialEq + std::fmt::Debug>(
    text: &str,
) -> Option<T> {
    match text.parse::<T>() {
        Ok(value) => {
            let written = value.to_string();
            let read = written.parse::<T>().ok();
            assert_eq!(read.as_ref(), Some(&value), "{text:?} is written {written:?}");
            Some(value)
        }
        Err(why) => {
            told(&why.to_string());
            None
        }
    }
}

/// Of a time there are two readers, one of them for the shape that is usual: they agree.
fn same_moment(text: &str, time: Timestamp) {
    let Some(rest) = text.strip_suffix('Z').filter(|rest| rest.contains('.')) else { return };
    let longer = format!("{rest}0Z").parse::<Timestamp>();
    assert!(longer.is_err() || longer.is_ok_and(|longer| longer == time), "{text}");
}

/// What is shown of an address is no secret: neither what stands before its `@`, nor a value of its query. A secret that is
/// also a name, or a part of the host, is seen there.
fn address(url: &TargetUrl, text: &str) {
    let shown = url.to_string();
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    assert_eq!(url.expose(), rest);
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if rest.is_empty() {
        assert_eq!(shown, url.scheme());
        return;
    }
    if query.contains('@') {
        // What stands before a `?` may be the beginning of a password.
        assert_eq!(shown, format!("{}://***", url.scheme()));
        return;
    }
    let path =
        path.rsplit_once('@').map_or_else(|| path.to_owned(), |(_, host)| format!("***@{host}"));
    let closed = |pair: &str| format!("{}=***", pair.split('=').next().unwrap_or_default());
    let query: Vec<String> = query.split('&').map(closed).collect();
    let query = if rest.contains('?') { format!("?{}", query.join("&")) } else { String::new() };
    assert_eq!(shown, format!("{}://{path}{query}", url.scheme()));
}

fn told(why: &str) {
    assert!(!why.is_empty());
    assert!(!why.chars().any(char::is_control), "a control character in a message: {why:?}");
}
