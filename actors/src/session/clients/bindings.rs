//! The binding router: which agent answers a message that names none.
//!
//! ROUTE-1: `peer > guild > team > account > channel > default`. A binding may state several
//! conditions; all must hold, and it ranks by its most specific one. Among bindings of one rank the
//! one with more conditions wins. Two bindings with the same conditions and different agents are
//! a mistake in the configuration, not a tie to be broken.
//!
//! Built once, then read only. Values are interned to small numbers, so that a look-up hashes
//! each field of the message once and then tries the few *shapes* (sets of conditions) in use:
//! its cost depends on the shapes, of which there are at most 31, not on the bindings.

use std::collections::HashMap;

use clawnode_proto::{AgentName, route::Inbound};

/// Conditions, the most specific first as in ROUTE-1: peer, guild, team, account, channel.
const FIELD_COUNT: usize = 5;
/// The number of no value: a condition that is not stated.
const NONE: u32 = 0;

/// Which agent answers what fits all stated conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The agent that answers.
    pub agent: AgentName,
    /// Where the message came in.
    pub channel: Option<String>,
    /// Our side of the channel.
    pub account: Option<String>,
    /// The other side.
    pub peer: Option<String>,
    /// The guild it was said in.
    pub guild: Option<String>,
    /// The team it was said in.
    pub team: Option<String>,
}

/// Why bindings make no router.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// It would match everything.
    #[error(
        "binding {at} (agent `{agent}`) states no condition; name the default agent instead, or \
         one of peer, guild, team, account, channel"
    )]
    Unconditional {
        /// Which, from 1.
        at: usize,
        agent: AgentName,
    },
    /// It would not be clear which of the two is meant.
    #[error(
        "bindings {first} and {second} state the same conditions, but name agents `{one}` and \
         `{other}`"
    )]
    Ambiguous {
        /// The one, from 1.
        first: usize,
        /// The other, from 1.
        second: usize,
        /// The agent of the one.
        one: AgentName,
        /// The agent of the other.
        other: AgentName,
    },
}

/// All bindings, indexed.
#[derive(Clone, Debug)]
pub struct Routes {
    default: AgentName,
    /// Each field's values, numbered from 1.
    values: [HashMap<Box<str>, u32>; FIELD_COUNT],
    /// In the order in which they are tried.
    shapes: Vec<BindingShape>,
}

/// All bindings that state the same set of conditions.
#[derive(Clone, Debug)]
struct BindingShape {
    stated: [bool; FIELD_COUNT],
    agents: HashMap<[u32; FIELD_COUNT], (usize, AgentName)>,
}

// === impl Routes ===

impl Routes {
    /// Indexes `bindings`; what none of them fits goes to `default`.
    pub fn build(default: AgentName, bindings: &[Binding]) -> Result<Self, RouteError> {
        let mut routes = Self { default, values: Default::default(), shapes: Vec::new() };
        for (index, binding) in bindings.iter().enumerate() {
            routes.add(index + 1, binding)?;
        }
        routes.shapes.sort_by_key(BindingShape::rank);
        Ok(routes)
    }

    /// The agent that answers `inbound`.
    pub fn resolve(&self, inbound: &Inbound<'_>) -> &AgentName {
        let numbers = self.numbers(inbound);
        self.shapes.iter().find_map(|shape| shape.agent(&numbers)).unwrap_or(&self.default)
    }

    fn add(&mut self, at: usize, binding: &Binding) -> Result<(), RouteError> {
        let conditions = binding.conditions();
        let stated = conditions.map(|condition| condition.is_some());
        if !stated.contains(&true) {
            return Err(RouteError::Unconditional { at, agent: binding.agent.clone() });
        }
        let mut key = [NONE; FIELD_COUNT];
        for (field, condition) in conditions.into_iter().enumerate() {
            if let Some(value) = condition {
                key[field] = intern(&mut self.values[field], value);
            }
        }
        let known = self.shapes.iter().position(|shape| shape.stated == stated);
        let at_shape = known.unwrap_or_else(|| {
            self.shapes.push(BindingShape { stated, agents: HashMap::new() });
            self.shapes.len() - 1
        });
        let shape = &mut self.shapes[at_shape];
        match shape.agents.get(&key) {
            Some((first, agent)) if *agent != binding.agent => Err(RouteError::Ambiguous {
                first: *first,
                second: at,
                one: agent.clone(),
                other: binding.agent.clone(),
            }),
            Some(_) => Ok(()),
            None => {
                shape.agents.insert(key, (at, binding.agent.clone()));
                Ok(())
            }
        }
    }

    /// The numbers of the message's values; [`NONE`] for one that no binding names.
    fn numbers(&self, inbound: &Inbound<'_>) -> [u32; FIELD_COUNT] {
        let fields = [
            Some(inbound.peer),
            inbound.guild,
            inbound.team,
            Some(inbound.account),
            Some(inbound.channel),
        ];
        let mut numbers = [NONE; FIELD_COUNT];
        for (field, value) in fields.into_iter().enumerate() {
            let values = &self.values[field];
            if let Some(value) = value
                && !values.is_empty()
            {
                numbers[field] = values.get(value).copied().unwrap_or(NONE);
            }
        }
        numbers
    }
}

fn intern(values: &mut HashMap<Box<str>, u32>, value: &str) -> u32 {
    if let Some(&known) = values.get(value) {
        return known;
    }
    let next = u32::try_from(values.len() + 1).unwrap_or(u32::MAX);
    values.insert(value.into(), next);
    next
}

// === impl BindingShape ===

impl BindingShape {
    /// ROUTE-1: by the most specific condition, then by how many there are. The last part only
    /// makes the order total.
    fn rank(&self) -> (usize, usize, [bool; FIELD_COUNT]) {
        let most_specific = self.stated.iter().position(|&stated| stated).unwrap_or(FIELD_COUNT);
        let unstated = self.stated.iter().filter(|&&stated| !stated).count();
        (most_specific, unstated, self.stated.map(|stated| !stated))
    }

    fn agent(&self, numbers: &[u32; FIELD_COUNT]) -> Option<&AgentName> {
        let mut key = [NONE; FIELD_COUNT];
        for field in 0..FIELD_COUNT {
            if self.stated[field] {
                if numbers[field] == NONE {
                    return None;
                }
                key[field] = numbers[field];
            }
        }
        self.agents.get(&key).map(|(_, agent)| agent)
    }
}

// === impl Binding ===

impl Binding {
    /// A binding that states nothing yet.
    pub fn new(agent: AgentName) -> Self {
        Self { agent, channel: None, account: None, peer: None, guild: None, team: None }
    }

    /// In the order of ROUTE-1.
    fn conditions(&self) -> [Option<&str>; FIELD_COUNT] {
        [
            self.peer.as_deref(),
            self.guild.as_deref(),
            self.team.as_deref(),
            self.account.as_deref(),
            self.channel.as_deref(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIELDS: [&str; FIELD_COUNT] = ["peer", "guild", "team", "account", "channel"];

    fn name(text: &str) -> AgentName {
        text.parse().unwrap()
    }

    fn binding(agent: &str, conditions: &[(&str, &str)]) -> Binding {
        let mut binding = Binding::new(name(agent));
        for &(field, value) in conditions {
            let slot = match field {
                "peer" => &mut binding.peer,
                "guild" => &mut binding.guild,
                "team" => &mut binding.team,
                "account" => &mut binding.account,
                "channel" => &mut binding.channel,
                other => panic!("no field `{other}`"),
            };
            *slot = Some(value.to_owned());
        }
        binding
    }

    const FULL: Inbound<'static> = Inbound {
        channel: "discord",
        account: "bot",
        peer: "ada",
        guild: Some("g1"),
        team: Some("t1"),
    };

    #[test]
    fn route_1_each_field_beats_all_after_it() {
        let values = ["ada", "g1", "t1", "bot", "discord"];
        // From the least specific on: each added binding takes over from those before it.
        let mut bindings = Vec::new();
        for at in (0..FIELD_COUNT).rev() {
            bindings.push(binding(FIELDS[at], &[(FIELDS[at], values[at])]));
            let routes = Routes::build(name("fallback"), &bindings).unwrap();
            assert_eq!(routes.resolve(&FULL).as_str(), FIELDS[at]);
        }
        let routes = Routes::build(name("fallback"), &bindings).unwrap();
        let stranger = Inbound { channel: "irc", account: "x", peer: "y", guild: None, team: None };
        assert_eq!(routes.resolve(&stranger).as_str(), "fallback");
        let same_guild = Inbound { peer: "bob", ..FULL };
        assert_eq!(routes.resolve(&same_guild).as_str(), "guild");
    }

    #[test]
    fn all_conditions_must_hold_and_more_of_them_win() {
        let routes = Routes::build(
            name("fallback"),
            &[
                binding("anywhere", &[("peer", "ada")]),
                binding("here", &[("peer", "ada"), ("channel", "discord")]),
                binding("elsewhere", &[("peer", "ada"), ("channel", "irc"), ("team", "t1")]),
            ],
        )
        .unwrap();
        assert_eq!(routes.resolve(&FULL).as_str(), "here");
        assert_eq!(routes.resolve(&Inbound { channel: "irc", ..FULL }).as_str(), "elsewhere");
        let no_team = Inbound { channel: "irc", team: None, ..FULL };
        assert_eq!(routes.resolve(&no_team).as_str(), "anywhere");
    }

    #[test]
    fn a_value_of_one_field_is_not_a_value_of_another() {
        let routes = Routes::build(name("fallback"), &[binding("a", &[("guild", "ada")])]).unwrap();
        assert_eq!(routes.resolve(&FULL).as_str(), "fallback");
    }

    #[test]
    fn mistakes_are_refused_by_number() {
        let twice = [
            binding("a", &[("peer", "ada")]),
            binding("b", &[("peer", "bob")]),
            binding("c", &[("peer", "ada")]),
        ];
        assert_eq!(
            Routes::build(name("d"), &twice).unwrap_err(),
            RouteError::Ambiguous { first: 1, second: 3, one: name("a"), other: name("c") }
        );
        let repeated = [binding("a", &[("peer", "ada")]), binding("a", &[("peer", "ada")])];
        assert!(Routes::build(name("d"), &repeated).is_ok());
        assert!(matches!(
            Routes::build(name("d"), &[binding("a", &[])]),
            Err(RouteError::Unconditional { at: 1, .. })
        ));
    }

    /// The rule, read slowly: the best of all bindings that fit.
    fn slow(bindings: &[Binding], inbound: &Inbound<'_>) -> Option<AgentName> {
        let said = [
            Some(inbound.peer),
            inbound.guild,
            inbound.team,
            Some(inbound.account),
            Some(inbound.channel),
        ];
        bindings
            .iter()
            .filter(|binding| {
                let conditions = binding.conditions();
                (0..FIELD_COUNT).all(|at| conditions[at].is_none() || conditions[at] == said[at])
            })
            .min_by_key(|binding| {
                let stated = binding.conditions().map(|condition| condition.is_some());
                BindingShape { stated, agents: HashMap::new() }.rank()
            })
            .map(|binding| binding.agent.clone())
    }

    proptest! {
        #[test]
        fn the_index_agrees_with_the_rule(
            conditions in proptest::collection::vec(
                proptest::array::uniform5(proptest::option::of(0_u8..3)), 0..40),
            said in proptest::array::uniform5(0_u8..3),
        ) {
            let mut bindings: Vec<Binding> = Vec::new();
            for (at, values) in conditions.iter().enumerate() {
                let text = |field: usize| values[field].map(|value| value.to_string());
                let candidate = Binding {
                    agent: name(&format!("agent-{at}")),
                    peer: text(0), guild: text(1), team: text(2), account: text(3), channel: text(4),
                };
                let stated = candidate.conditions().iter().any(Option::is_some);
                let known = bindings.iter().any(|b| b.conditions() == candidate.conditions());
                if stated && !known {
                    bindings.push(candidate);
                }
            }
            let routes = Routes::build(name("fallback"), &bindings).unwrap();
            let said = said.map(|value| value.to_string());
            let inbound = Inbound {
                peer: &said[0], guild: Some(&said[1]), team: Some(&said[2]),
                account: &said[3], channel: &said[4],
            };
            let expected = slow(&bindings, &inbound).unwrap_or_else(|| name("fallback"));
            prop_assert_eq!(routes.resolve(&inbound), &expected);
        }
    }
}
