//! Where a message came in: what the choice of an agent is made from.

/// The fields of a message that bindings of agents are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inbound<'a> {
    /// The channel that it came in on, for example `discord` or `web`.
    pub channel: &'a str,
    /// The account of the channel that received it: our side.
    pub account: &'a str,
    /// The person or program that sent it: the other side.
    pub peer: &'a str,
    /// The guild that it was said in, on channels that have guilds.
    pub guild: Option<&'a str>,
    /// The team that it was said in, on channels that have teams.
    pub team: Option<&'a str>,
}
