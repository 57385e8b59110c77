//! Which addresses are public.
//!
//! After the registries of special-purpose addresses (RFC 6890 and its updates). Of IPv6 only the
//! global unicast range can be public at all, so that whatever is assigned outside it later is
//! refused as it is.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Why an address is not public.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Special {
    /// `0.0.0.0/8`, `::`.
    #[error("unspecified")]
    Unspecified,
    /// `127.0.0.0/8`, `::1`.
    #[error("loopback")]
    Loopback,
    /// Private, carrier-grade NAT, unique-local, site-local.
    #[error("private")]
    Private,
    /// `169.254.0.0/16`, `fe80::/10`: where clouds keep their metadata.
    #[error("link-local")]
    LinkLocal,
    /// Addresses in public ranges at which clouds answer only to their own machines.
    #[error("cloud metadata")]
    Metadata,
    /// To many.
    #[error("multicast")]
    Multicast,
    /// To all.
    #[error("broadcast")]
    Broadcast,
    /// For documents and benchmarks.
    #[error("documentation or benchmarking")]
    Documentation,
    /// An address of the other family inside one: mapped, compatible, NAT64, 6to4, Teredo.
    #[error("translated")]
    Translated,
    /// Unassigned, or assigned to protocols.
    #[error("reserved")]
    Reserved,
}

/// A range of addresses: `10.1.0.0/16`, `fd12::/16`, or one address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr(IpNet);

/// A text that is no range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a range of addresses such as `10.1.0.0/16`, `fd12::/16` or `192.168.7.7`")]
pub struct ParseCidrError(String);

/// What an address is that begins with so many bits of this one. The first that fits decides.
const V4: [([u8; 4], u32, Special); 17] = [
    ([0, 0, 0, 0], 8, Special::Unspecified),
    ([10, 0, 0, 0], 8, Special::Private),
    ([100, 64, 0, 0], 10, Special::Private),
    ([127, 0, 0, 0], 8, Special::Loopback),
    // Azure answers its machines here.
    ([168, 63, 129, 16], 32, Special::Metadata),
    ([169, 254, 0, 0], 16, Special::LinkLocal),
    ([172, 16, 0, 0], 12, Special::Private),
    ([192, 0, 0, 0], 24, Special::Reserved),
    ([192, 0, 2, 0], 24, Special::Documentation),
    ([192, 88, 99, 0], 24, Special::Translated),
    ([192, 168, 0, 0], 16, Special::Private),
    ([198, 18, 0, 0], 15, Special::Documentation),
    ([198, 51, 100, 0], 24, Special::Documentation),
    ([203, 0, 113, 0], 24, Special::Documentation),
    ([224, 0, 0, 0], 4, Special::Multicast),
    ([255, 255, 255, 255], 32, Special::Broadcast),
    ([240, 0, 0, 0], 4, Special::Reserved),
];

/// The same of IPv6; [`GLOBAL`] settles the rest.
const V6: [(u128, u32, Special); 16] = [
    (0, 128, Special::Unspecified),
    (1, 128, Special::Loopback),
    // Compatible, mapped, and mapped the other way round.
    (0, 96, Special::Translated),
    (0xffff << 32, 96, Special::Translated),
    (0xffff << 48, 96, Special::Translated),
    // NAT64, everybody's and one's own.
    (head(0x64, 0xff9b), 96, Special::Translated),
    (head(0x64, 0xff9b) | 1 << 80, 48, Special::Translated),
    // Teredo, and 6to4 below.
    (head(0x2001, 0), 32, Special::Translated),
    (head(0x2001, 2), 48, Special::Documentation),
    (head(0x2001, 0), 23, Special::Reserved),
    (head(0x2001, 0xdb8), 32, Special::Documentation),
    (head(0x2002, 0), 16, Special::Translated),
    (head(0x3fff, 0), 20, Special::Documentation),
    (head(0xfc00, 0), 7, Special::Private),
    (head(0xfe80, 0), 10, Special::LinkLocal),
    (head(0xfec0, 0), 10, Special::Private),
];
/// Global unicast: `2000::/3`.
const GLOBAL: (u128, u32) = (head(0x2000, 0), 3);
/// `ff00::/8`.
const MULTICAST: (u128, u32) = (head(0xff00, 0), 8);

/// Why this address is not public; none if it is.
pub(super) fn special(address: IpAddr) -> Option<Special> {
    match address {
        IpAddr::V4(v4) => {
            let bits = v4.to_bits();
            let found = V4.iter().find(|(network, length, _)| {
                begins(bits.into(), Ipv4Addr::from(*network).to_bits().into(), *length + 96)
            });
            found.map(|(.., special)| *special)
        }
        IpAddr::V6(v6) => special_v6(v6),
    }
}

fn special_v6(address: Ipv6Addr) -> Option<Special> {
    let bits = address.to_bits();
    let found = V6.iter().find(|(network, length, _)| begins(bits, *network, *length));
    if let Some((.., special)) = found {
        Some(*special)
    } else if begins(bits, MULTICAST.0, MULTICAST.1) {
        Some(Special::Multicast)
    } else {
        (!begins(bits, GLOBAL.0, GLOBAL.1)).then_some(Special::Reserved)
    }
}

/// Whether the first `length` of 128 bits are the same.
fn begins(bits: u128, network: u128, length: u32) -> bool {
    (bits ^ network).checked_shr(128 - length).unwrap_or(0) == 0
}

/// The address that begins with these two parts.
const fn head(first: u16, second: u16) -> u128 {
    (first as u128) << 112 | (second as u128) << 96
}

// === impl Cidr ===

impl Cidr {
    /// Whether it has this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

impl FromStr for Cidr {
    type Err = ParseCidrError;

    fn from_str(text: &str) -> Result<Self, ParseCidrError> {
        let net = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        net.map(Self).map_err(|_neither| ParseCidrError(text.chars().take(80).collect()))
    }
}

impl TryFrom<String> for Cidr {
    type Error = ParseCidrError;

    fn try_from(text: String) -> Result<Self, ParseCidrError> {
        text.parse()
    }
}

impl From<Cidr> for String {
    fn from(cidr: Cidr) -> Self {
        cidr.to_string()
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_range_ends_where_it_ends() {
        for (first, last, kind) in [
            ("0.0.0.0", "0.255.255.255", Special::Unspecified),
            ("10.0.0.0", "10.255.255.255", Special::Private),
            ("100.64.0.0", "100.127.255.255", Special::Private),
            ("127.0.0.0", "127.255.255.255", Special::Loopback),
            ("168.63.129.16", "168.63.129.16", Special::Metadata),
            ("169.254.0.0", "169.254.255.255", Special::LinkLocal),
            ("172.16.0.0", "172.31.255.255", Special::Private),
            ("192.0.0.0", "192.0.0.255", Special::Reserved),
            ("192.0.2.0", "192.0.2.255", Special::Documentation),
            ("192.88.99.0", "192.88.99.255", Special::Translated),
            ("192.168.0.0", "192.168.255.255", Special::Private),
            ("198.18.0.0", "198.19.255.255", Special::Documentation),
            ("198.51.100.0", "198.51.100.255", Special::Documentation),
            ("203.0.113.0", "203.0.113.255", Special::Documentation),
        ] {
            let (first, last): (Ipv4Addr, Ipv4Addr) =
                (first.parse().unwrap(), last.parse().unwrap());
            for inside in [first, last] {
                assert_eq!(special(inside.into()), Some(kind), "{inside}");
            }
            let after = Ipv4Addr::from_bits(last.to_bits() + 1);
            assert_eq!(special(after.into()), None, "{after}");
            if let Some(before) = first.to_bits().checked_sub(1).map(Ipv4Addr::from_bits) {
                assert_eq!(special(before.into()), None, "{before}");
            }
        }
        for (address, kind) in [
            ("224.0.0.1", Special::Multicast),
            ("239.255.255.255", Special::Multicast),
            ("240.0.0.1", Special::Reserved),
            ("255.255.255.255", Special::Broadcast),
        ] {
            assert_eq!(special(address.parse().unwrap()), Some(kind), "{address}");
        }
    }

    #[test]
    fn of_the_newer_addresses_few_are_public() {
        for (address, kind) in [
            ("::", Some(Special::Unspecified)),
            ("::1", Some(Special::Loopback)),
            ("::127.0.0.1", Some(Special::Translated)),
            ("::ffff:8.8.8.8", Some(Special::Translated)),
            ("::ffff:0:127.0.0.1", Some(Special::Translated)),
            ("64:ff9b::8.8.8.8", Some(Special::Translated)),
            ("64:ff9b:1::7f00:1", Some(Special::Translated)),
            ("64:ff9b:2::1", Some(Special::Reserved)),
            ("100::1", Some(Special::Reserved)),
            ("2001::1", Some(Special::Translated)),
            ("2001:2::1", Some(Special::Documentation)),
            ("2001:1ff::1", Some(Special::Reserved)),
            ("2001:200::1", None),
            ("2001:db8::1", Some(Special::Documentation)),
            ("2001:4860:4860::8888", None),
            ("2002:7f00:1::", Some(Special::Translated)),
            ("2606:4700::1111", None),
            ("3fff:fff::1", Some(Special::Documentation)),
            ("3fff:1000::1", None),
            ("4000::1", Some(Special::Reserved)),
            ("5f00::1", Some(Special::Reserved)),
            ("fd00:ec2::254", Some(Special::Private)),
            ("fe80::1", Some(Special::LinkLocal)),
            ("fec0::1", Some(Special::Private)),
            ("ff02::1", Some(Special::Multicast)),
        ] {
            assert_eq!(special(address.parse().unwrap()), kind, "{address}");
        }
    }

    #[test]
    fn a_range_is_written_as_people_write_it() {
        let lab: Cidr = serde_json::from_str(r#""10.1.0.0/16""#).unwrap();
        assert!(lab.contains("10.1.255.1".parse().unwrap()));
        assert!(!lab.contains("10.2.0.0".parse().unwrap()));
        let one: Cidr = "192.168.7.7".parse().unwrap();
        assert_eq!(one.to_string(), "192.168.7.7/32");
        // A mapped address is not the address that it maps.
        assert!(!one.contains("::ffff:192.168.7.7".parse().unwrap()));
        for bad in ["", "10.0.0.0/33", "10.0", "example.org", "fe80::1%1/64"] {
            assert!(bad.parse::<Cidr>().unwrap_err().to_string().contains(bad), "{bad}");
        }
    }
}
