//! Requests of webhooks at a receiver: signatures, and the event behind them.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use postrider_webhook::receive::Received;
use postrider_webhook::{Signed, SigningKey, VerifyingKey, sign, verify};

use crate::message::Message;

/// Wide enough for any clock: whose time is old is a matter of another test.
const EVER: Duration = Duration::from_secs(u64::MAX / 4);

/// A request as it comes, and the same with a signature of a key that the receiver knows.
pub fn received(input: &[u8]) {
    let mut message = Message::of(input);
    let id = message.take("@id").unwrap_or("00000000-0000-0000-0000-000000000001");
    let keys = keys();
    let mut verifying: Vec<VerifyingKey> = keys.iter().map(SigningKey::verifying_key).collect();
    if let Some(key) = message.take("@key") {
        verifying.extend(key.parse::<VerifyingKey>());
        assert!(!format!("{verifying:?}").contains(key) || key.len() < 8);
    }
    let mut headers = HeaderMap::new();
    for (name, value) in message.headers.iter().take(100) {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    // Nobody who does not know the key has signed it: a text that was found by trying is no signature.
    if let Ok(known) = Received::verify(&headers, message.body.clone(), &verifying, EVER) {
        read(&known);
    }
    let body = &message.body;
    let at = 1_767_323_045;
    let signature = sign(keys, id, at, body);
    let time = at.to_string();
    let signed = Signed { id, timestamp: &time, signature: &signature };
    let now = SystemTime::now();
    let is_plain = |id: &str| id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'.');
    let usable = (1..=256).contains(&id.len()) && is_plain(id);
    assert_eq!(verify(signed, body, &verifying, EVER, now).is_ok(), usable, "{id:?}");
    let longer = [body, &b"x"[..]].concat();
    assert!(verify(signed, &longer, &verifying, EVER, now).is_err(), "another body");
    assert!(verify(signed, body, &verifying, Duration::ZERO, now).is_err(), "an old request");
    let Ok(id) = HeaderValue::from_str(id) else { return };
    headers.insert("webhook-id", id);
    headers.insert("webhook-timestamp", at.into());
    let Ok(signature) = HeaderValue::from_str(&signature) else { return };
    headers.insert("webhook-signature", signature);
    if let Ok(known) = Received::verify(&headers, body.clone(), &verifying, EVER) {
        read(&known);
    }
}

fn read(request: &Received) {
    let _ = request.attempt();
    if let Ok((event, _)) = request.event() {
        assert_eq!(request.id().parse().ok(), Some(event.id), "another event than was signed");
    }
}

fn keys() -> &'static [SigningKey] {
    static KEYS: OnceLock<Vec<SigningKey>> = OnceLock::new();
    KEYS.get_or_init(|| {
        let texts = [
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsk_nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=",
        ];
        texts.iter().map(|text| text.parse().expect("a key")).collect()
    })
}
