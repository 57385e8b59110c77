//! Budgets: accounts with their limits, and what accounts and the processes that spend say to each
//! other.
//!
//! An **account** is an entity of the kind `budget`. It has limits and gives processes **slices** of
//! the rest of them. The **holder** of a process lets its calls reserve from slices in memory.

mod account;
mod event;
mod hold;
mod input;
mod limit;
mod spend;
mod window;

pub use account::AccountKey;
pub use event::{
    BudgetAllowed, BudgetAsked, BudgetEvent, BudgetGranted, BudgetOver, BudgetSet, BudgetWarned,
    WindowBegun,
};
pub use hold::{BudgetHeld, Hold};
pub use input::{
    AskAnswer, AskVerdict, BudgetInput, GrantedSlice, LimitSource, ProcessStanding, SliceAsk,
    SliceReport,
};
pub use limit::{
    AMOUNT_MOST, ASK_AT, BudgetLimit, BudgetUnit, LIMITS_MOST, LimitError, LimitKey, WARN_AT,
    check_limits,
};
pub use spend::{ExceededLimit, SpendLimits};
pub use window::{WindowError, WindowLength, WindowNumber};
