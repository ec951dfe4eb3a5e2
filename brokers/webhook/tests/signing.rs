//! Signatures: published vectors, rotation, both kinds of keys, and everything that must not verify.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use postrider_core::Outcome;
use postrider_webhook::receive::Received;
use postrider_webhook::signature::TOLERANCE;
use postrider_webhook::{
    Endpoint, Signed, SigningKey, Unverified, VerifyingKey, WebhookBroker, sign, verify,
};
use proptest::prelude::*;

use crate::support::*;

const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
const TIME: u64 = 1_614_265_330;
const BODY: &[u8] = br#"{"test": 2432232314}"#;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// The vectors in the tests of the specification's own libraries, and one of Python's `cryptography`.
const VECTORS: [(&str, &str); 3] = [
    (SECRET, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    (
        "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=",
        "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag==",
    ),
    (
        "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8DoQe/884Qvh1w3RjnS8CZZ+TWMJulDV8d3IZkElUxuA==",
        "v1a,yoUrgEkc12aGqm0n4Sydmdz55xJfTz4AsAgieHFjmkR7LJtqVCZOQYzvvHjI5kAey+r4iaBGxTFRrl2iBQxtDQ==",
    ),
];

#[test]
fn published_vectors_are_met() {
    for (key, expected) in VECTORS {
        let key: SigningKey = key.parse().unwrap();
        let signature = sign(std::slice::from_ref(&key), ID, TIME, BODY);
        assert_eq!(signature, expected);
        let signed = Signed { id: ID, timestamp: "1614265330", signature: &signature };
        let verified = verify(signed, BODY, &[key.verifying_key()], TOLERANCE, at(TIME));
        assert_eq!(verified, Ok(at(TIME)));
    }
}

fn keys(text: &[&str]) -> Vec<SigningKey> {
    text.iter().map(|text| text.parse().unwrap()).collect()
}

/// Rotation: while both keys sign, a receiver may know either; when the old one is gone, only the new.
#[tokio::test]
async fn keys_are_rotated_without_a_gap() {
    let server = answering(|| status(200)).await;
    let [old, new, other] = VECTORS.map(|(key, _)| key);
    let endpoint =
        |signing: &[&str]| Endpoint { keys: keys(signing), ..Endpoint::new(server.url("/")) };
    let broker = WebhookBroker::new(&settings().endpoint("partner", endpoint(&[old]))).unwrap();
    let steps: [(&[&str], &[&str], &[&str]); 3] = [
        (&[old], &[old], &[new, other]),
        (&[old, new], &[old, new], &[other]),
        (&[new], &[new], &[old, other]),
    ];
    for (number, (signing, fit, unfit)) in steps.into_iter().enumerate() {
        broker.reload(&settings().endpoint("partner", endpoint(signing))).unwrap();
        assert_eq!(publish(&broker, outgoing(number as u128)).await, Outcome::Acked);
        let got = server.got().pop().unwrap();
        assert_eq!(got.header("webhook-signature").unwrap().split(' ').count(), signing.len());
        let verified = |key: &str| {
            let key = key.parse::<SigningKey>().unwrap().verifying_key();
            Received::verify(&got.headers, got.body.clone(), &[key], TOLERANCE).map(|_| ())
        };
        fit.iter().for_each(|key| assert_eq!(verified(key), Ok(())));
        unfit.iter().for_each(|key| assert_eq!(verified(key), Err(Unverified::NoMatch)));
    }
}

#[test]
fn what_must_not_verify_does_not() {
    let keys: Vec<VerifyingKey> = verifying();
    let signature = VECTORS[0].1;
    let good = Signed { id: ID, timestamp: "1614265330", signature };
    let now = at(TIME);
    let refused = |signed: Signed<'_>| verify(signed, BODY, &keys, TOLERANCE, now).unwrap_err();
    assert_eq!(verify(good, BODY, &keys, TOLERANCE, now), Ok(now));
    assert_eq!(verify(good, BODY, &[], TOLERANCE, now), Err(Unverified::NoMatch));
    assert_eq!(verify(good, b"{}", &keys, TOLERANCE, now), Err(Unverified::NoMatch));
    assert_eq!(refused(Signed { id: "msg_other", ..good }), Unverified::NoMatch);
    assert_eq!(refused(Signed { timestamp: "1614265331", ..good }), Unverified::NoMatch);
    for id in ["", "a.b", "a b", "ä", &"x".repeat(257)] {
        assert_eq!(refused(Signed { id, ..good }), Unverified::Header("webhook-id"), "{id}");
    }
    for timestamp in ["", "+1614265330", "-1", "1614265330.0", " 1614265330", "9999999999999"] {
        let expected = Unverified::Header("webhook-timestamp");
        assert_eq!(refused(Signed { timestamp, ..good }), expected, "{timestamp}");
    }
    let bare = &signature[3..];
    let kind = format!("v2,{bare}");
    let ed25519 = format!("v1a,{bare}");
    let cut = &signature[..signature.len() - 1];
    for signature in ["v1,", "v1", bare, &kind, &ed25519, cut, "v1,====", "v1a,AAAA"] {
        assert_eq!(refused(Signed { signature, ..good }), Unverified::NoMatch, "{signature}");
    }
    let many = [signature; 33].join(" ");
    for signature in ["", " ", &many] {
        let expected = Unverified::Header("webhook-signature");
        assert_eq!(refused(Signed { signature, ..good }), expected);
    }
    let among_others = format!("v9,x  v1,AAAA {signature} garbage");
    let signed = Signed { signature: &among_others, ..good };
    assert_eq!(verify(signed, BODY, &keys, TOLERANCE, now), Ok(now));
}

#[test]
fn old_and_future_requests_are_refused() {
    let signed = Signed { id: ID, timestamp: "1614265330", signature: VECTORS[0].1 };
    let judge = |now| verify(signed, BODY, &verifying(), TOLERANCE, at(now));
    assert_eq!(judge(TIME + 300), Ok(at(TIME)));
    assert_eq!(judge(TIME + 301), Err(Unverified::TooOld));
    assert_eq!(judge(TIME - 300), Ok(at(TIME)));
    assert_eq!(judge(TIME - 301), Err(Unverified::TooNew));
}

/// Of two headers it would not be known which one was signed.
#[test]
fn a_header_that_comes_twice_is_refused() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let mut headers = HeaderMap::new();
    headers.insert("webhook-id", ID.parse().unwrap());
    headers.insert("webhook-timestamp", now.into());
    headers.insert("webhook-signature", sign(&[key()], ID, now, BODY).parse().unwrap());
    assert!(Received::verify(&headers, BODY, &verifying(), TOLERANCE).is_ok());
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        let mut twice = headers.clone();
        twice.append(name, headers[name].clone());
        let refused = Received::verify(&twice, BODY, &verifying(), TOLERANCE).unwrap_err();
        assert_eq!(refused, Unverified::Header(name));
        let mut without = headers.clone();
        without.remove(name);
        let refused = Received::verify(&without, BODY, &verifying(), TOLERANCE).unwrap_err();
        assert_eq!(refused, Unverified::Header(name));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn what_is_signed_verifies_and_nothing_else(
        id in "[!-~&&[^.]]{1,64}",
        time in 0u64..1_000_000_000_000,
        body: Vec<u8>,
        place: prop::sample::Index,
        bit in 0u8..8,
        kind in 0usize..3,
    ) {
        let key: SigningKey = VECTORS[kind].0.parse().unwrap();
        let keys = [key.verifying_key()];
        let signature = sign(&[key], &id, time, &body);
        let timestamp = time.to_string();
        let signed = Signed { id: &id, timestamp: &timestamp, signature: &signature };
        let judge = |signed, body: &[u8]| verify(signed, body, &keys, TOLERANCE, at(time));
        prop_assert_eq!(judge(signed, &body), Ok(at(time)));
        // One bit anywhere.
        if !body.is_empty() {
            let mut changed = body.clone();
            let at = place.index(changed.len());
            changed[at] ^= 1 << bit;
            prop_assert_eq!(judge(signed, &changed), Err(Unverified::NoMatch));
        }
        let mut changed = id.clone().into_bytes();
        let at = place.index(changed.len());
        changed[at] ^= 1 << bit;
        if let Ok(changed) = std::str::from_utf8(&changed) {
            let forged = judge(Signed { id: changed, ..signed }, &body);
            prop_assert!(forged.is_err());
        }
        let mut longer = body.clone();
        longer.push(b'x');
        prop_assert_eq!(judge(signed, &longer), Err(Unverified::NoMatch));
    }

    #[test]
    fn arbitrary_headers_never_panic_and_never_verify(
        id: String, timestamp: String, signature in any::<String>(), body: Vec<u8>,
    ) {
        let (id, timestamp) = (&*id, &*timestamp);
        for signature in [signature.clone(), format!("v1,{signature}"), format!("v1a,{signature}")] {
            let signed = Signed { id, timestamp, signature: &signature };
            let verified = verify(signed, &body, &verifying(), Duration::MAX, at(TIME));
            prop_assert!(verified.is_err());
            let signed = Signed { id: ID, timestamp: "1614265330", signature: &signature };
            prop_assert!(verify(signed, &body, &verifying(), TOLERANCE, at(TIME)).is_err());
        }
    }

    /// A receiver reads whatever a stranger with the key may have signed.
    #[test]
    fn arbitrary_bodies_are_read_without_panic(
        body: Vec<u8>,
        headers in prop::collection::vec(("ce-[a-z]{1,12}|content-type", any::<Vec<u8>>()), 0..8),
    ) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let mut map = HeaderMap::new();
        map.insert("ce-specversion", "1.0".parse().unwrap());
        for (name, value) in headers {
            let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            if let Ok(value) = http::HeaderValue::from_bytes(&value) {
                map.insert(name, value);
            }
        }
        map.insert("webhook-id", ID.parse().unwrap());
        map.insert("webhook-timestamp", now.into());
        map.insert("webhook-signature", sign(&[key()], ID, now, &body).parse().unwrap());
        let received = Received::verify(&map, body, &verifying(), TOLERANCE).unwrap();
        prop_assert!(received.event().is_err(), "its id is no event's");
    }
}
