//! Which addresses are nobody's public server: the registries of special-purpose addresses, and the
//! metadata services of clouds.
//!
//! Invariant: of IPv6 only what the registry has allocated as global unicast can pass, so that a
//! block nobody thought of is refused, not let through.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is refused; `None` for a public one.
pub(crate) fn refusal(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => refusal_v4(address),
        IpAddr::V6(address) => refusal_v6(address),
    }
}

/// IANA's registry of special-purpose IPv4 addresses, with what is multicast or reserved, and one
/// public address at which a cloud serves its machines.
const V4: [([u8; 4], u32, &str); 18] = [
    ([0, 0, 0, 0], 8, "unspecified"),
    ([10, 0, 0, 0], 8, "private"),
    ([100, 64, 0, 0], 10, "shared"),
    ([127, 0, 0, 0], 8, "loopback"),
    ([169, 254, 0, 0], 16, "link-local"),
    ([172, 16, 0, 0], 12, "private"),
    ([192, 0, 0, 0], 24, "protocol assignments"),
    ([192, 0, 2, 0], 24, "documentation"),
    ([192, 31, 196, 0], 24, "AS112"),
    ([192, 52, 193, 0], 24, "AMT"),
    ([192, 88, 99, 0], 24, "6to4 relay"),
    ([192, 168, 0, 0], 16, "private"),
    ([192, 175, 48, 0], 24, "AS112"),
    ([198, 18, 0, 0], 15, "benchmarking"),
    ([198, 51, 100, 0], 24, "documentation"),
    ([203, 0, 113, 0], 24, "documentation"),
    ([224, 0, 0, 0], 3, "multicast or reserved"),
    ([168, 63, 129, 16], 32, "cloud metadata"),
];

/// Blocks inside 2000::/3 that are no public servers, and names for the usual ones outside.
const V6: [([u16; 8], u32, &str); 16] = [
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, "unspecified"),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, "loopback"),
    ([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, "IPv4-mapped"),
    ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, "IPv4-translated"),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, "IPv4-translated"),
    ([0x100, 0, 0, 0, 0, 0, 0, 0], 64, "discard"),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "unique-local"),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "link-local"),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "multicast"),
    // Teredo, benchmarking, ORCHID, and the rest of the protocol assignments.
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, "Teredo"),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, "protocol assignments"),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "documentation"),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, "6to4"),
    ([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48, "AS112"),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "documentation"),
    ([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16, "segment routing"),
];

fn refusal_v4(address: Ipv4Addr) -> Option<&'static str> {
    let bits = address.to_bits();
    V4.iter().find_map(|(network, length, name)| {
        let same = (bits ^ Ipv4Addr::from(*network).to_bits()) >> (32 - length) == 0;
        same.then_some(*name)
    })
}

fn refusal_v6(address: Ipv6Addr) -> Option<&'static str> {
    let bits = address.to_bits();
    let named = V6.iter().find_map(|(network, length, name)| {
        let same = (bits ^ Ipv6Addr::from(*network).to_bits()) >> (128 - length) == 0;
        same.then_some(*name)
    });
    named.or_else(|| (bits >> 125 != 1).then_some("not global unicast"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A block, from its first address to its last.
    const REFUSED: [(&str, &str); 36] = [
        ("0.0.0.0", "0.255.255.255"),
        ("10.0.0.0", "10.255.255.255"),
        ("100.64.0.0", "100.127.255.255"),
        ("127.0.0.0", "127.255.255.255"),
        ("169.254.0.0", "169.254.255.255"),
        ("172.16.0.0", "172.31.255.255"),
        ("192.0.0.0", "192.0.0.255"),
        ("192.0.2.0", "192.0.2.255"),
        ("192.31.196.0", "192.31.196.255"),
        ("192.52.193.0", "192.52.193.255"),
        ("192.88.99.0", "192.88.99.255"),
        ("192.168.0.0", "192.168.255.255"),
        ("192.175.48.0", "192.175.48.255"),
        ("198.18.0.0", "198.19.255.255"),
        ("198.51.100.0", "198.51.100.255"),
        ("203.0.113.0", "203.0.113.255"),
        ("224.0.0.0", "239.255.255.255"),
        ("240.0.0.0", "255.255.255.255"),
        ("168.63.129.16", "168.63.129.16"),
        ("::", "::"),
        ("::1", "::1"),
        ("::ffff:0:0", "::ffff:255.255.255.255"),
        ("64:ff9b::", "64:ff9b::255.255.255.255"),
        ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff"),
        ("100::", "100::ffff:ffff:ffff:ffff"),
        ("100:0:0:1::", "100:0:0:1:ffff:ffff:ffff:ffff"),
        ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("2620:4f:8000::", "2620:4f:8000:ffff:ffff:ffff:ffff:ffff"),
        ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ];

    /// Neighbours of those blocks that are public.
    const PUBLIC: [&str; 26] = [
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.0.3.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "203.0.112.255",
        "223.255.255.255",
        "168.63.129.17",
        "2001:200::",
        "2001:db7:ffff::",
        "2003::1",
        "2606:4700::1111",
        "2a00:1450::1",
        "3ffe:ffff::",
    ];

    fn bits(text: &str) -> (u128, bool) {
        match text.parse().unwrap() {
            IpAddr::V4(address) => (u128::from(address.to_bits()), true),
            IpAddr::V6(address) => (address.to_bits(), false),
        }
    }

    fn address(bits: u128, is_v4: bool) -> IpAddr {
        if is_v4 {
            IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(bits).unwrap()))
        } else {
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
    }

    /// F32: both ends of every block of the registries, and the metadata services by name.
    #[test]
    fn what_is_not_public_is_refused() {
        for text in REFUSED.iter().flat_map(|(first, last)| [first, last]) {
            assert!(refusal(text.parse().unwrap()).is_some(), "{text}");
        }
        for metadata in [
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::ffff:169.254.169.254",
            "64:ff9b::169.254.169.254",
        ] {
            assert!(refusal(metadata.parse().unwrap()).is_some(), "{metadata}");
        }
    }

    #[test]
    fn what_is_public_passes() {
        for text in PUBLIC {
            assert_eq!(refusal(text.parse().unwrap()), None, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_address_of_a_block_is_refused(block in 0..REFUSED.len(), place: u128) {
            let ((first, is_v4), (last, _)) = (bits(REFUSED[block].0), bits(REFUSED[block].1));
            let inside = match (last - first).checked_add(1) {
                Some(size) => first + place % size,
                None => place,
            };
            let address = address(inside, is_v4);
            prop_assert!(refusal(address).is_some(), "{}", address);
        }

        /// An IPv4 address is refused in every IPv6 dress, public or not: what it is dressed for is
        /// to pass a check.
        #[test]
        fn embedded_addresses_are_refused(bits: u32) {
            let v4 = Ipv4Addr::from_bits(bits);
            let [a, b] = [(bits >> 16) as u16, bits as u16];
            for dressed in [
                v4.to_ipv6_mapped(),
                v4.to_ipv6_compatible(),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a, b),
                Ipv6Addr::new(0x2002, a, b, 0, 0, 0, 0, 1),
                Ipv6Addr::new(0x2001, 0, a, b, 0, 0, !a, !b),
            ] {
                prop_assert!(refusal(IpAddr::V6(dressed)).is_some(), "{}", dressed);
            }
        }

        /// Outside the table a public address of IPv4 passes: the table is not merely "refuse".
        #[test]
        fn outside_the_blocks_addresses_pass(bits: u32) {
            let listed = REFUSED.iter().any(|(first, last)| {
                let ((first, is_v4), (last, _)) = (super::tests::bits(first), super::tests::bits(last));
                is_v4 && (first..=last).contains(&u128::from(bits))
            });
            let address = IpAddr::V4(Ipv4Addr::from_bits(bits));
            prop_assert_eq!(refusal(address).is_some(), listed, "{}", address);
        }
    }
}
