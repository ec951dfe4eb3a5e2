//! The rules for names that stand in attributes. They are those of the stores and brokers, where a
//! breach would show when the first event is enqueued; a type's are narrower, since it becomes part
//! of topics.

/// The longest type and aggregate, in bytes, as the stores have it.
const NAME_BYTES_MAX: usize = 255;
/// The longest name of a header, in bytes, as brokers take it.
const HEADER_BYTES_MAX: usize = 128;
/// Names of headers that Postrider sets.
const RESERVED: &str = "postrider-";

/// Whether the text can be an event's type, and if not, why.
pub(crate) fn check_type(text: &str) -> Result<(), String> {
    check_length("the type", text)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    if let Some(c) = text.chars().find(|c| !allowed(*c)) {
        return Err(format!("the type has {c:?}: it has a-z A-Z 0-9 _ and dots alone"));
    }
    if text.split('.').any(str::is_empty) {
        return Err("the type has a dot with nothing on one side of it".to_owned());
    }
    Ok(())
}

/// Whether the text can name a kind of aggregate.
pub(crate) fn check_aggregate(text: &str) -> Result<(), String> {
    check_length("the aggregate", text)?;
    match text.chars().find(|c| c.is_control()) {
        Some(c) => Err(format!("the aggregate has the control character {c:?}")),
        None => Ok(()),
    }
}

/// Whether the text can name a header.
pub(crate) fn check_header(text: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    if text.is_empty() || text.len() > HEADER_BYTES_MAX || !text.chars().all(allowed) {
        return Err(format!(
            "a header's name has 1 to {HEADER_BYTES_MAX} characters out of a-z 0-9 . _ -"
        ));
    }
    if text.starts_with(RESERVED) {
        return Err(format!("names that begin with `{RESERVED}` are Postrider's own"));
    }
    Ok(())
}

fn check_length(what: &str, text: &str) -> Result<(), String> {
    match text.len() {
        0 => Err(format!("{what} is empty")),
        1..=NAME_BYTES_MAX => Ok(()),
        length => Err(format!("{what} has {length} bytes, the limit is {NAME_BYTES_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_parts_with_dots_between_them() {
        let longest = "t".repeat(255);
        for good in ["placed", "order.placed", "Shop_1.order.placed", &longest] {
            assert_eq!(check_type(good), Ok(()));
        }
        let longer = "t".repeat(256);
        for bad in ["", ".", ".placed", "order.", "a..b", "a-b", "a b", "ö", "{type}", &longer] {
            assert!(check_type(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn headers_are_plain_and_not_reserved() {
        for good in ["correlationid", "x-1", "a.b_c", "postrider"] {
            assert_eq!(check_header(good), Ok(()));
        }
        for bad in ["", "X-Upper", "a b", "a:b", "postrider-late", &"h".repeat(129)] {
            assert!(check_header(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn aggregates_are_short_and_printable() {
        assert_eq!(check_aggregate("sales order"), Ok(()));
        for bad in ["", "a\n", &"a".repeat(256)] {
            assert!(check_aggregate(bad).is_err(), "{bad:?}");
        }
    }
}
