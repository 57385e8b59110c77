//! Addresses in every spelling that a parser anywhere is known to read.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A host as it may stand in a URL, and where it leads.
pub(crate) struct Spelling {
    pub(crate) host: String,
    pub(crate) leads: Leads,
}

/// Where a spelling leads, by the rule of this table and not by the code under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leads {
    /// To this address and no other.
    To(Ipv4Addr),
    /// To an address that is never allowed: it wraps another one, or is no address at all.
    Nowhere,
}

/// Addresses of each special range, and one that a lab allows.
pub(crate) const ALLOWED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
pub(crate) const FORBIDDEN: [[u8; 4]; 20] = [
    [127, 0, 0, 1],
    [127, 1, 2, 3],
    [0, 0, 0, 0],
    [10, 0, 0, 1],
    [10, 255, 255, 255],
    [100, 64, 0, 1],
    [100, 100, 100, 200],
    [169, 254, 169, 254],
    [172, 16, 0, 1],
    [172, 31, 255, 254],
    [192, 0, 0, 192],
    [192, 0, 2, 1],
    [192, 88, 99, 1],
    [192, 168, 0, 1],
    [198, 18, 0, 1],
    [198, 51, 100, 7],
    [203, 0, 113, 9],
    [224, 0, 0, 251],
    [240, 0, 0, 1],
    [255, 255, 255, 255],
];
const FORBIDDEN_V6: [&str; 18] = [
    "::",
    "::1",
    "::2",
    "fe80::1",
    "fe80::a9fe:a9fe",
    "febf::1",
    "fec0::1",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "ff0e::1",
    "2001:db8::1",
    "2001:10::1",
    "2001:2::1",
    "3fff::1",
    "100::1",
    "5f00::1",
    "4000::1",
];

/// Every spelling of this address.
pub(crate) fn of_v4(address: Ipv4Addr) -> Vec<Spelling> {
    let [a, b, c, d] = address.octets();
    let bits = address.to_bits();
    let (low24, low16) = (bits & 0xff_ffff, bits & 0xffff);
    let dotted = address.to_string();
    let replaced = |from: char, to: &str| dotted.replace(from, to);
    let same = [
        dotted.clone(),
        format!("{dotted}."),
        bits.to_string(),
        format!("0{bits:o}"),
        format!("{bits:#x}"),
        format!("0X{bits:X}"),
        format!("0x{bits:016x}"),
        format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
        format!("0X{a:02X}.0X{b:02X}.0X{c:02X}.0X{d:02X}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("000{a:o}.000{b:o}.0{c:o}.000000{d:o}"),
        format!("{a}.0{b:o}.{c:#x}.{d}"),
        format!("{a:#x}.{low24}"),
        format!("{a}.{low24:#x}"),
        format!("0{a:o}.0{low24:o}"),
        format!("{a}.{b}.{low16}"),
        format!("{a}.{b:#x}.0{low16:o}"),
        replaced('.', "。"),
        replaced('.', "．"),
        replaced('.', "｡"),
        replaced('.', "%2e"),
        fullwidth(&dotted),
        fullwidth(&bits.to_string()),
        dotted.chars().map(circled).collect(),
        dotted.bytes().map(percent).collect(),
        format!("{a}.\u{ad}{b}.{c}.{d}"),
        format!("{a}.{b}.{c}.\u{200b}{d}"),
    ];
    let same = same.into_iter().map(|host| Spelling { host, leads: Leads::To(address) });
    let other = wrapped(address).into_iter();
    same.chain(other.map(|host| Spelling { host, leads: Leads::Nowhere })).collect()
}

/// The address within another one, hidden behind a name, or spelled so that parsers disagree.
fn wrapped(address: Ipv4Addr) -> Vec<String> {
    let [a, b, c, d] = address.octets();
    let bits = address.to_bits();
    let (high, low) = (bits >> 16, bits & 0xffff);
    let dotted = address.to_string();
    vec![
        format!("[::ffff:{dotted}]"),
        format!("[::FFFF:{high:X}:{low:X}]"),
        format!("[0:0:0:0:0:ffff:{high:04x}:{low:04x}]"),
        format!("[0000:0000:0000:0000:0000:ffff:{dotted}]"),
        format!("[::{high:x}:{low:x}]"),
        format!("[0:0:0:0:0:0:{dotted}]"),
        format!("[::ffff:0:{dotted}]"),
        format!("[64:ff9b::{dotted}]"),
        format!("[64:ff9b::{high:x}:{low:x}]"),
        format!("[64:ff9b:1::{dotted}]"),
        format!("[2002:{high:x}:{low:x}::]"),
        format!("[2002:{high:x}:{low:x}::1]"),
        format!("[2001:0:4136:e378:8000:63bf:{:x}:{:x}]", high ^ 0xffff, low ^ 0xffff),
        format!("[fe80::5efe:{dotted}]"),
        format!("user@{dotted}"),
        format!("example.org:80@{dotted}"),
        format!("user:@{dotted}"),
        format!("{dotted}\\@example.org"),
        format!("example.org\\@{dotted}"),
        format!("example.org\t@{dotted}"),
        format!("{a}.{b}\t.{c}.{d}"),
        format!("{a}.{b}\n.{c}.{d}"),
        format!("{a}.{b}.{c}.{d}\0"),
        format!(" {dotted}"),
        format!("{dotted}%00"),
        format!("{dotted}%20"),
        format!("[{dotted}]"),
        "[::1%25lo]".to_owned(),
        format!("[::ffff:{dotted}%lo]"),
        format!("{dotted}.."),
        format!(".{dotted}"),
        format!("{a}.{b}.{c}.{d}.0"),
        format!("{}.{b}.{c}.{d}", u32::from(a) + 256),
        format!("{}", u64::from(bits) + (1 << 32)),
    ]
}

/// Every spelling of the addresses of IPv6 that are never allowed.
pub(crate) fn of_v6() -> Vec<Spelling> {
    let mut hosts = Vec::new();
    for text in FORBIDDEN_V6 {
        let address: Ipv6Addr = text.parse().unwrap();
        let whole: Vec<String> =
            address.segments().iter().map(|segment| format!("{segment:04X}")).collect();
        let short: Vec<String> =
            address.segments().iter().map(|segment| format!("{segment:x}")).collect();
        hosts.extend([
            format!("[{text}]"),
            format!("[{}]", whole.join(":")),
            format!("[{}]", short.join(":")),
            format!("[{text}%25eth0]"),
            format!("[{text}%eth0]"),
            format!("[{text}]."),
        ]);
    }
    hosts.into_iter().map(|host| Spelling { host, leads: Leads::Nowhere }).collect()
}

fn percent(byte: u8) -> String {
    format!("%{byte:02x}")
}

fn fullwidth(text: &str) -> String {
    let wide = |c: char| char::from_u32(u32::from(c) + 0xfee0).unwrap_or(c);
    text.chars().map(wide).collect()
}

fn circled(c: char) -> char {
    match c.to_digit(10) {
        Some(0) => '⓪',
        Some(digit) => char::from_u32(0x245f + digit).unwrap_or(c),
        None => c,
    }
}
