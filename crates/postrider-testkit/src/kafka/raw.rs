//! Records that no client of ours would write: other clients do, and the server takes them.

use std::time::Duration;

use postrider_core::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::KafkaServer;

/// The first version of the request `Produce` with which a server takes zstd.
const PRODUCE: i16 = 7;

const PATIENCE: Duration = Duration::from_secs(30);

impl KafkaServer {
    /// Puts a record into the partition 0 of a topic, whose header has a name that need not be text.
    ///
    /// # Panics
    /// If the server does not take it.
    pub async fn produce_named(&self, topic: &str, header: &[u8], value: &[u8]) {
        let mut record = vec![0];
        for _ in 0..2 {
            varint(&mut record, 0);
        }
        varint(&mut record, -1);
        sized(&mut record, value);
        varint(&mut record, 1);
        sized(&mut record, header);
        sized(&mut record, b"x");
        let mut records = Vec::new();
        sized(&mut records, &record);
        self.produce_raw(topic, 0, &records).await;
    }

    /// Puts a record of so many zeros into the partition 0 of a topic: a few kilobytes until somebody unpacks it (zstd).
    ///
    /// # Panics
    /// If the server does not take it.
    pub async fn produce_bomb(&self, topic: &str, zeros: usize) {
        const BLOCK: usize = 128 * 1024;
        let blocks = zeros.div_ceil(BLOCK);
        let mut head = vec![0];
        for _ in 0..2 {
            varint(&mut head, 0);
        }
        varint(&mut head, -1);
        // The last zero is the count of the headers.
        varint(&mut head, (blocks * BLOCK - 1) as i64);
        let mut start = Vec::new();
        varint(&mut start, (head.len() + blocks * BLOCK) as i64);
        start.extend_from_slice(&head);
        // RFC 8878: the magic number, no size and no checksum, a window of 8 MiB, then blocks.
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 13 << 3];
        let block = |kind: u32, size: usize, last: bool| {
            ((size as u32) << 3 | kind << 1 | u32::from(last)).to_le_bytes()
        };
        frame.extend_from_slice(&block(0, start.len(), false)[..3]);
        frame.extend_from_slice(&start);
        for at in 1..=blocks {
            frame.extend_from_slice(&block(1, BLOCK, at == blocks)[..3]);
            frame.push(0);
        }
        self.produce_raw(topic, 4, &frame).await;
    }

    async fn produce_raw(&self, topic: &str, compression: i16, records: &[u8]) {
        let set = batch(compression, records);
        let mut request = Vec::new();
        request.extend_from_slice(&0i16.to_be_bytes());
        request.extend_from_slice(&PRODUCE.to_be_bytes());
        request.extend_from_slice(&7i32.to_be_bytes());
        // No name of a client, no transaction; every copy is waited for.
        request.extend_from_slice(&(-1i16).to_be_bytes());
        request.extend_from_slice(&(-1i16).to_be_bytes());
        request.extend_from_slice(&(-1i16).to_be_bytes());
        request.extend_from_slice(&10_000i32.to_be_bytes());
        request.extend_from_slice(&1i32.to_be_bytes());
        request.extend_from_slice(&(topic.len() as i16).to_be_bytes());
        request.extend_from_slice(topic.as_bytes());
        request.extend_from_slice(&1i32.to_be_bytes());
        request.extend_from_slice(&0i32.to_be_bytes());
        request.extend_from_slice(&(set.len() as i32).to_be_bytes());
        request.extend_from_slice(&set);
        let mut server = TcpStream::connect(self.address()).await.expect("a connection");
        server.write_all(&(request.len() as i32).to_be_bytes()).await.expect("a request");
        server.write_all(&request).await.expect("a request");
        let asked = timeout(PATIENCE, server.read_i32()).await;
        let length = asked.expect("an answer in time").expect("an answer");
        let mut answer = vec![0; length as usize];
        server.read_exact(&mut answer).await.expect("an answer");
        // Behind the number of the request, one topic with its name, and one partition.
        let at = 4 + 4 + 2 + topic.len() + 4 + 4;
        let error = i16::from_be_bytes([answer[at], answer[at + 1]]);
        assert_eq!(error, 0, "the server does not take it");
    }
}

/// A batch of one record, as version 2 of the format has it.
fn batch(compression: i16, records: &[u8]) -> Vec<u8> {
    let mut rest = Vec::new();
    rest.extend_from_slice(&compression.to_be_bytes());
    rest.extend_from_slice(&0i32.to_be_bytes());
    // The first and the last time, in milliseconds since 1970: what is old may be let go soon.
    let now = Timestamp::now().as_micros() / 1_000;
    for _ in 0..2 {
        rest.extend_from_slice(&now.to_be_bytes());
    }
    // No producer that counts.
    rest.extend_from_slice(&(-1i64).to_be_bytes());
    rest.extend_from_slice(&(-1i16).to_be_bytes());
    rest.extend_from_slice(&(-1i32).to_be_bytes());
    rest.extend_from_slice(&1i32.to_be_bytes());
    rest.extend_from_slice(records);
    let mut all = Vec::new();
    all.extend_from_slice(&0i64.to_be_bytes());
    all.extend_from_slice(&(rest.len() as i32 + 9).to_be_bytes());
    all.extend_from_slice(&(-1i32).to_be_bytes());
    all.push(2);
    all.extend_from_slice(&crc32c(&rest).to_be_bytes());
    all.extend_from_slice(&rest);
    all
}

/// RFC 3720, appendix B.4: Castagnoli's polynomial, backwards.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
        })
    })
}

/// A number as Kafka's records have them: zigzag, seven bits at a time.
fn varint(out: &mut Vec<u8>, number: i64) {
    let mut rest = (number << 1 ^ number >> 63).cast_unsigned();
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn sized(out: &mut Vec<u8>, bytes: &[u8]) {
    varint(out, bytes.len() as i64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
