//! The numbers of events: the place of an event, and a check of all that was said up to it.

/// Bits of the check in a number. Clients hold numbers of 53 bits, so a response has room for 137 thousand
/// million events.
const CHECK_BITS: u32 = 16;

/// Where an event is among those of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventNumber {
    /// How many events there are before it.
    place: u64,
    check: u16,
}

/// A check of all that was said.
#[derive(Clone, Debug, Default)]
pub(super) struct EventCheck(Option<Box<blake3::Hasher>>);

// === impl EventNumber ===

impl EventNumber {
    /// That of the event after so many, once this was said.
    pub(super) fn new(place: u64, check: &EventCheck) -> Self {
        Self { place, check: check.sum() }
    }

    pub(super) const fn place(self) -> u64 {
        self.place
    }

    pub(super) const fn of(number: u64) -> Self {
        let check = number & ((1 << CHECK_BITS) - 1);
        let check = check as u16;
        Self { place: number >> CHECK_BITS, check }
    }

    pub(super) const fn to_u64(self) -> u64 {
        self.place << CHECK_BITS | self.check as u64
    }
}

// === impl EventCheck ===

impl EventCheck {
    pub(super) fn add(&mut self, kind: &str, said: &str) {
        let hasher = self.0.get_or_insert_default();
        hasher.update(kind.as_bytes()).update(&[0]);
        hasher.update(said.as_bytes()).update(&[0]);
    }

    /// 0 before anything was said.
    fn sum(&self) -> u16 {
        self.0.as_ref().map_or(0, |hasher| {
            let [first, second, ..] = *hasher.finalize().as_bytes();
            u16::from_be_bytes([first, second])
        })
    }
}
