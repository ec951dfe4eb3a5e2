//! Certificates as a library writes them, and texts that are none.

use postrider_core::operate::Level;
use postrider_testkit::authority::Authority;

use super::*;

const DAY: Duration = Duration::from_secs(86_400);

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Both ways to write a time are read: until 2049 with two digits of the year, from then on with four.
#[test]
fn the_end_is_read_from_the_file() {
    let authority = Authority::new();
    for (year, end) in [(2030, "2030-12-31T00:00:00Z"), (2090, "2090-12-31T00:00:00Z")] {
        let (certificate, _) = authority.sign("ours", year);
        assert_eq!(end_of(&certificate), Ok(at(end)));
    }
}

/// Of a chain the one counts that ends first, wherever it stands; a key beside it is passed over.
#[test]
fn of_a_chain_the_first_end_counts() {
    let authority = Authority::new();
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let (late, key) = authority.sign("late", 2090);
    let (early, _) = authority.sign("early", 2031);
    let both = authority.path("both.pem");
    for texts in [[&late, &key, &early], [&early, &key, &late]] {
        std::fs::write(&both, texts.map(|path| read(path)).concat()).unwrap();
        assert_eq!(end_of(&both), Ok(at("2031-12-31T00:00:00Z")));
    }
}

/// Every beginning of a certificate, and every byte of it set wrong, is an answer.
#[test]
fn what_is_no_certificate_has_no_end() {
    let authority = Authority::new();
    let (certificate, key) = authority.sign("ours", 2030);
    let text = std::fs::read_to_string(certificate).unwrap();
    let der = chain(&text).next().unwrap().unwrap();
    for length in 0..der.len() {
        assert_eq!(not_after(&der[..length]), None, "{length} bytes");
    }
    for index in 0..der.len() {
        let mut broken = der.clone();
        broken[index] ^= 0xff;
        let _ = not_after(&broken);
    }
    let file = authority.path("none.pem");
    for text in ["", "no certificate", &text.replace("MII", "!!!"), &text[..text.len() - 40]] {
        std::fs::write(&file, text).unwrap();
        assert!(end_of(&file).is_err(), "{text}");
    }
    assert!(end_of(&key).is_err(), "a key is none");
    assert!(end_of(&authority.path("absent.pem")).is_err());
}

/// R125: a certificate is told of two weeks before its end, and at its end it is critical; each with what to do.
#[test]
fn doctor_tells_of_a_certificate_that_ends() {
    let authority = Authority::new();
    let (certificate, _) = authority.sign("ours", 2030);
    let end = at("2030-12-31T00:00:00Z");
    let before = |span: Duration| {
        let micros = i64::try_from(span.as_micros()).unwrap();
        examine("c", &certificate, Timestamp::from_micros(end.as_micros() - micros))
    };
    for (span, level) in [
        (DAY * 15, Level::Good),
        (SOON, Level::Good),
        (DAY * 13, Level::Warning),
        (Duration::ZERO, Level::Critical),
    ] {
        let found = before(span);
        assert_eq!(found.level, level, "{span:?}");
        assert!(found.message.contains("ours.pem"), "{found:?}");
        if level != Level::Good {
            assert_eq!(found.code, Some(Code::CertificateEnds));
            assert!(found.advice.unwrap().contains("kill -HUP"));
        }
    }
    let unreadable = examine("c", &authority.path("absent.pem"), end);
    assert_eq!((unreadable.level, unreadable.code), (Level::Warning, Some(Code::CertificateEnds)));
}

/// What is read again counts from then on, and what is gone is not shown any more.
#[test]
fn a_reload_reads_the_files_again() {
    let authority = Authority::new();
    let (certificate, _) = authority.sign("ours", 2030);
    let ends = Ends::default();
    ends.learn([("orders".to_owned(), certificate.as_path())]);
    assert_eq!(ends.all()["orders"], at("2030-12-31T00:00:00Z"));
    authority.sign("ours", 2040);
    assert_eq!(ends.all()["orders"], at("2030-12-31T00:00:00Z"), "nobody has read it yet");
    ends.clone().learn([("orders".to_owned(), certificate.as_path())]);
    assert_eq!(ends.all()["orders"], at("2040-12-31T00:00:00Z"));
    ends.learn([]);
    assert!(ends.all().is_empty());
}
