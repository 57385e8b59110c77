//! The flags of `budget` that name limits.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, parser::ValueSource};
use clawnode_proto::budget::{BudgetUnit, LimitKey, WindowLength};

/// Every limit, as a flag names it, and an example of its amount.
const LIMITS: [(&str, BudgetUnit, WindowLength); 12] = [
    ("usd-per-hour", BudgetUnit::Usd, WindowLength::Hour),
    ("usd-per-day", BudgetUnit::Usd, WindowLength::Day),
    ("usd-per-month", BudgetUnit::Usd, WindowLength::Month),
    ("usd", BudgetUnit::Usd, WindowLength::Forever),
    ("tokens-per-hour", BudgetUnit::Tokens, WindowLength::Hour),
    ("tokens-per-day", BudgetUnit::Tokens, WindowLength::Day),
    ("tokens-per-month", BudgetUnit::Tokens, WindowLength::Month),
    ("tokens", BudgetUnit::Tokens, WindowLength::Forever),
    ("loops-per-hour", BudgetUnit::Loops, WindowLength::Hour),
    ("loops-per-day", BudgetUnit::Loops, WindowLength::Day),
    ("loops-per-month", BudgetUnit::Loops, WindowLength::Month),
    ("loops", BudgetUnit::Loops, WindowLength::Forever),
];

/// Limits with amounts.
#[derive(Debug)]
pub(super) struct LimitAmounts(pub(super) Vec<(LimitKey, String)>);

/// Limits without amounts.
#[derive(Debug)]
pub(super) struct LimitChoices(pub(super) Vec<LimitKey>);

/// The limits, and what flags call them.
pub(super) fn keys() -> impl Iterator<Item = (&'static str, LimitKey)> {
    LIMITS.into_iter().map(|(flag, unit, window)| (flag, LimitKey { unit, window }))
}

fn is_typed(matches: &ArgMatches, flag: &str) -> bool {
    matches.value_source(flag) == Some(ValueSource::CommandLine)
}

impl FromArgMatches for LimitAmounts {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let amount = |flag| matches.get_one::<String>(flag).cloned();
        Ok(Self(keys().filter_map(|(flag, key)| Some((key, amount(flag)?))).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for LimitAmounts {
    fn augment_args(command: Command) -> Command {
        keys().fold(command, |command, (flag, LimitKey { unit, window })| {
            let within = match window {
                WindowLength::Forever => "in all".to_owned(),
                WindowLength::Hour => "that may be spent in an hour".to_owned(),
                window => format!("that may be spent in a {window}"),
            };
            let help = format!("The {unit} {within}, or `none`");
            let arg = Arg::new(flag).long(flag).value_name("AMOUNT").help(help);
            // The node says why a negative amount is none.
            command.arg(arg.allow_negative_numbers(true))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LimitChoices {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let chosen = keys().filter(|(flag, _)| is_typed(matches, flag));
        Ok(Self(chosen.map(|(_, key)| key).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for LimitChoices {
    fn augment_args(command: Command) -> Command {
        keys().fold(command, |command, (flag, key)| {
            let help = format!("More of the limit `{key}` (default: all that wait for a person)");
            command.arg(Arg::new(flag).long(flag).action(ArgAction::SetTrue).help(help))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
