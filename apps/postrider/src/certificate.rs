//! When our own certificates end, with which we show servers who we are: read from their files, since neither client says.
//!
//! Invariant: nothing of a key is read, and a certificate that cannot be read holds nothing up: the client says what is
//! wrong with it when it is used.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_config::{Config, DestinationConfig, KafkaSource, Kind, NatsSource};
use postrider_core::operate::{Finding, findings};
use postrider_core::{Code, Timestamp};

/// How long before its end a certificate is told of: who renews by hand has a week, and a holiday.
pub(crate) const SOON: Duration = Duration::from_secs(14 * 86_400);

/// Of a file with certificates; a chain has some kilobytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Certificates of one file: a chain has three or four.
const CHAIN_MAX: usize = 16;

/// Where a certificate begins and ends in PEM.
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Tags of DER.
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// Our certificate for a destination's servers, if it has one.
pub(crate) fn of_destination(destination: &DestinationConfig) -> Option<&Path> {
    match destination.kind {
        Kind::Kafka => destination.kafka.certificate.as_deref(),
        Kind::Nats => destination.nats.certificate.as_deref(),
        _ => None,
    }
}

/// Those of all destinations, by their names.
pub(crate) fn of_destinations(config: &Config) -> impl Iterator<Item = (String, &Path)> {
    config
        .destinations
        .iter()
        .filter_map(|(id, destination)| Some((id.to_string(), of_destination(destination)?)))
}

/// Our certificate for the servers of a source, of which at most one has a table that says so.
pub(crate) fn of_source<'a>(
    kafka: Option<&'a KafkaSource>,
    nats: Option<&'a NatsSource>,
) -> Option<&'a Path> {
    let kafka = kafka.and_then(|kafka| kafka.certificate.as_deref());
    kafka.or_else(|| nats.and_then(|nats| nats.certificate.as_deref()))
}

/// When what we show ends, by whom it is shown for: as it was read at the start, or by the last reload. The clients of a
/// relay read their files no later.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends(Arc<Mutex<BTreeMap<String, Timestamp>>>);

impl Ends {
    /// Reads all files, and tells of what ends soon.
    pub(crate) fn learn<'a>(&self, files: impl IntoIterator<Item = (String, &'a Path)>) {
        let mut read = BTreeMap::new();
        for (name, path) in files {
            // What is wrong with it, its client has said.
            let Ok(end) = end_of(path) else { continue };
            if end.since(Timestamp::now()) < SOON {
                let file = path.display();
                tracing::warn!(of = %name, %file, %end, "our certificate ends soon, or has ended");
            }
            read.insert(name, end);
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = read;
    }

    /// What is known.
    pub(crate) fn all(&self) -> BTreeMap<String, Timestamp> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What `doctor` says of a certificate.
pub(crate) fn examine(subject: &str, path: &Path, now: Timestamp) -> Finding {
    let file = path.display();
    let advice = "renew the file, and then let the program read it: kill -HUP PID, or a restart";
    let end = match end_of(path) {
        Ok(end) => end,
        Err(why) => {
            let message = format!("it is not known when the certificate {file} ends: {why}");
            return findings::coded(subject, message, advice, Code::CertificateEnds);
        }
    };
    if end <= now {
        let message = format!("the certificate {file} ended at {end}: servers refuse it");
        return findings::critical(subject, message, advice, Code::CertificateEnds);
    }
    let message = format!("the certificate {file} ends at {end}");
    if end.since(now) < SOON {
        return findings::coded(subject, message, advice, Code::CertificateEnds);
    }
    findings::good(subject, message)
}

/// When the first certificate of a file ends: of a chain that one counts which ends first.
fn end_of(path: &Path) -> Result<Timestamp, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| error.to_string())?;
    let ends = chain(&text).take(CHAIN_MAX).map(|der| der.as_deref().and_then(not_after));
    let ends: Option<Vec<Timestamp>> = ends.collect();
    let first = ends.as_ref().and_then(|ends| ends.iter().min());
    first.copied().ok_or_else(|| "it is no certificate in PEM".to_owned())
}

/// The certificates of a text in PEM; nothing in place of one that is broken.
fn chain(text: &str) -> impl Iterator<Item = Option<Vec<u8>>> {
    text.split(BEGIN).skip(1).map(|rest| {
        let (body, _) = rest.split_once(END)?;
        let letters: String = body.chars().filter(|letter| !letter.is_ascii_whitespace()).collect();
        STANDARD.decode(letters).ok()
    })
}

/// The end of a certificate's validity: X.509 as RFC 5280 has it, section 4.1.
fn not_after(der: &[u8]) -> Option<Timestamp> {
    let (certificate, _) = element(der, SEQUENCE)?;
    let (mut rest, _) = element(certificate, SEQUENCE)?;
    // A first version says nothing of itself.
    if let Some((_, behind)) = element(rest, VERSION) {
        rest = behind;
    }
    // The number, how it is signed, and by whom.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        (_, rest) = element(rest, tag)?;
    }
    let (validity, _) = element(rest, SEQUENCE)?;
    let (_, _, behind) = any(validity)?;
    let (tag, end, _) = any(behind)?;
    moment(tag, std::str::from_utf8(end).ok()?)
}

/// `YYMMDDHHMMSSZ`, or with the century.
fn moment(tag: u8, text: &str) -> Option<Timestamp> {
    let digits = text.strip_suffix('Z')?;
    let full = match tag {
        UTC_TIME if digits.len() == 12 => {
            let century = if digits.get(..2)?.parse::<u32>().ok()? < 50 { "20" } else { "19" };
            format!("{century}{digits}")
        }
        GENERALIZED_TIME if digits.len() == 14 => digits.to_owned(),
        _ => return None,
    };
    let part = |from: usize| full.get(from..from + 2);
    let (year, month, day) = (full.get(..4)?, part(4)?, part(6)?);
    let (hour, minute, second) = (part(8)?, part(10)?, part(12)?);
    format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z").parse().ok()
}

/// What is in an element of this tag, and what stands behind it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, inside, behind) = any(bytes)?;
    (found == tag).then_some((inside, behind))
}

/// The tag of an element, what is in it, and what stands behind it.
fn any(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, mut rest) = rest.split_first()?;
    let mut length = usize::from(*first);
    if length >= 0x80 {
        // So many bytes say how long it is; four would be four gigabytes.
        let count = length - 0x80;
        let (said, behind) = (count <= 4).then(|| rest.split_at_checked(count))??;
        length = said.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        rest = behind;
    }
    let (inside, behind) = rest.split_at_checked(length)?;
    Some((*tag, inside, behind))
}

#[cfg(test)]
mod tests;
