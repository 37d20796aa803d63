//! How rules offer choices: one for each decision, none if there is a single option.

use crate::tune::{Choice, Decision};

/// Offers choices and records the decisions.
pub(super) struct Chooser<'a> {
    answer: &'a mut dyn FnMut(&Choice) -> usize,
    pub(super) decisions: Vec<Decision>,
}

impl<'a> Chooser<'a> {
    pub(super) fn new(answer: &'a mut dyn FnMut(&Choice) -> usize) -> Chooser<'a> {
        Chooser { answer, decisions: Vec::new() }
    }

    /// Returns the index of the option that is taken.
    pub(super) fn index(
        &mut self,
        stage: &str,
        what: &str,
        choices: Vec<String>,
        default: usize,
    ) -> usize {
        if choices.len() <= 1 {
            return 0;
        }
        let name = format!("{stage}.{what}");
        let choice = Choice { name, stage: stage.to_string(), options: choices, default };
        let chosen = (self.answer)(&choice);
        if chosen >= choice.options.len() {
            crate::bug!("answer {chosen} to `{}`", choice.name);
        }
        self.decisions.push(Decision { choice, chosen });
        chosen
    }

    /// Returns the value that is taken. The default is `default`, or the first value if it is not
    /// among them.
    pub(super) fn pick<T: ToString + Clone + PartialEq>(
        &mut self,
        stage: &str,
        what: &str,
        values: &[T],
        default: &T,
    ) -> T {
        let at = values.iter().position(|value| value == default).unwrap_or(0);
        let choices = values.iter().map(T::to_string).collect();
        values[self.index(stage, what, choices, at)].clone()
    }

    /// Whether the second of two options is taken.
    pub(super) fn is_second(
        &mut self,
        stage: &str,
        what: &str,
        choices: [&str; 2],
        default: bool,
    ) -> bool {
        let choices = choices.map(str::to_string).to_vec();
        self.index(stage, what, choices, usize::from(default)) == 1
    }

    /// Whether something is done (`no` or `yes`).
    pub(super) fn whether(&mut self, stage: &str, what: &str, default: bool) -> bool {
        self.is_second(stage, what, ["no", "yes"], default)
    }
}
