//! `effect` and `rerun` (CONTRACT 1.8, 5.6).

use super::fault::Faults;
use super::tree::{self, Kind, Member};
use super::value;
use crate::checks;
use crate::declared::Expression;
use crate::effect::Effect;

/// What a call may change.
pub(super) struct Effects {
    /// The effect, or the most that an expression may yield; `None` after a fault.
    pub(super) effect: Option<Effect>,
    /// What tells it for each input, where the author wrote an expression.
    pub(super) expression: Option<Expression>,
}

impl Effects {
    /// Whether every call has this effect.
    pub(super) fn is_always(&self, effect: Effect) -> bool {
        self.expression.is_none() && self.effect == Some(effect)
    }

    /// Whether no call is a write.
    pub(super) fn are_never_writes(&self) -> bool {
        self.is_always(Effect::Read) || self.is_always(Effect::Idempotent)
    }
}

/// Reads `effect`; without it a tool is a write.
pub(super) fn read(members: &[Member], faults: &mut Faults<'_>) -> Effects {
    const EXAMPLE: &str = "effect = \"read\"";
    let of = |effect| Effects { effect, expression: None };
    let Some(member) = tree::find(members, "effect") else { return of(Some(Effect::Write)) };
    match &member.node.kind {
        Kind::Text(word) => {
            let known = [Effect::Read, Effect::Idempotent, Effect::Write];
            let effect = known.into_iter().find(|effect| effect.as_str() == word);
            if effect.is_none() {
                let message = format!("`effect` is `{word}`, which is none of the three");
                let mend = "write `read`, `idempotent` or `write`";
                faults.at(member.line, "tool.effect-invalid", message, mend);
            }
            of(effect)
        }
        Kind::Table(_) => {
            let expression = value::over_input(member, faults);
            Effects { effect: expression.as_ref().map(|_| Effect::Write), expression }
        }
        _ => {
            value::wrong_kind(member, "`read`, `idempotent` or `write`", EXAMPLE, faults);
            of(None)
        }
    }
}

/// Reads `rerun`, which cannot be judged after a fault of `effect`.
pub(super) fn rerun(members: &[Member], effects: &Effects, faults: &mut Faults<'_>) -> bool {
    let Some(member) = tree::find(members, "rerun") else { return false };
    let rerun = value::flag(member, faults).unwrap_or(false);
    if let Some(effect) = effects.effect {
        faults.finding(Some(member.line), checks::rerun(effect, rerun));
    }
    rerun
}
