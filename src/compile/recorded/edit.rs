//! Inserts schedules into the text of a file.
//!
//! The schedule is named `tuned`, so the kernel is built with it for that target. It replaces the
//! kernel's schedule of that name for that target or for the same target with more features, which
//! would be used instead. If there are several, it replaces the last and the others are removed.

use crate::compile::text::duration;
use crate::diag::{Diag, Result, Span};
use crate::lang::ast::{self, Item, Schedule};
use crate::lang::parse_file;
use crate::schedule::{is_narrower, with_all_features};
use crate::tune::records::{Record, SizedChoice};

/// The name of the schedule.
pub const NAME: &str = crate::schedule::TUNED;

/// Returns a recorded schedule as `tuned` of a kernel.
pub fn rename_to_tuned(text: &str, kernel: &str) -> Result<String> {
    let file = parse_file(text, 0)?;
    let item = only_schedule(&file)?;
    let (start, mut end) = (item.kernel.span.start as usize, item.kernel.span.end as usize);
    if let Some(name) = &item.name {
        end = name.span.end as usize;
    }
    let body = &text[end..item.span.end as usize];
    Ok(format!("{}{kernel}.{NAME}{body}\n", &text[item.span.start as usize..start]))
}

/// Returns the recorded schedules for several sizes as versions of `tuned` of a kernel, each with a
/// comment that says for which sizes it was chosen. One schedule stays as it is.
pub fn versions_to_tuned(choice: &SizedChoice<'_>, kernel: &str) -> Result<String> {
    if let SizedChoice::Always { sizes } = choice {
        return rename_to_tuned(&sizes[0].schedule, kernel);
    }
    let mut targets = Vec::new();
    for record in choice.sizes() {
        let file = parse_file(&record.schedule, 0)?;
        targets.extend(only_schedule(&file)?.target.as_ref().map(|target| target.text.clone()));
    }
    let target = with_all_features(targets.iter().map(|target| &target[..]));
    let target = if target.is_empty() { target } else { format!(" for {target}") };
    let mut text = format!("schedule {kernel}.{NAME}{target} {{\n    ");
    write_versions(&mut text, choice, "    ")?;
    text.push_str("\n}\n");
    Ok(text)
}

/// Writes the branches of a choice, behind the indentation of the first line.
fn write_versions(text: &mut String, choice: &SizedChoice<'_>, indent: &str) -> Result<()> {
    let inner = format!("{indent}    ");
    match choice {
        SizedChoice::Always { sizes } => {
            let size = |record: &&Record| {
                let vars = record.vars.iter().map(|(name, value)| format!("{name} = {value}"));
                let time = duration(record.seconds().unwrap_or(f64::NAN));
                format!("# {}: {time}", vars.collect::<Vec<_>>().join(", "))
            };
            let mut lines: Vec<String> = sizes.iter().map(size).collect();
            lines.extend(body_lines(&sizes[0].schedule)?);
            text.push_str(&lines.join(&format!("\n{indent}")));
        }
        SizedChoice::AtMost { var, most, small, large } => {
            text.push_str(&format!("if {var} <= {most} {{\n{inner}"));
            write_versions(text, small, &inner)?;
            text.push_str(&format!("\n{indent}}} else "));
            match **large {
                SizedChoice::AtMost { .. } => write_versions(text, large, indent)?,
                SizedChoice::Always { .. } => {
                    text.push_str(&format!("{{\n{inner}"));
                    write_versions(text, large, &inner)?;
                    text.push_str(&format!("\n{indent}}}"));
                }
            }
        }
    }
    Ok(())
}

/// Returns the lines between the braces of a recorded schedule, indented relative to each other.
fn body_lines(text: &str) -> Result<Vec<String>> {
    let file = parse_file(text, 0)?;
    let item = only_schedule(&file)?;
    if let Some(param) = item.params.first() {
        let message = format!("a recorded schedule has the parameter `{}`", param.name.text);
        let diag = Diag::global("E0605", message);
        return Err(Box::new(diag.note("schedules with parameters are no versions for sizes")));
    }
    let header = item.target.as_ref().or(item.name.as_ref()).unwrap_or(&item.kernel);
    let whole = &text[header.span.end as usize..item.span.end as usize];
    let whole = whole.trim();
    let body = whole.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(whole);
    let lines = body.lines().map(str::trim_end).filter(|line| !line.is_empty());
    Ok(lines.map(|line| line.strip_prefix("    ").unwrap_or(line).to_string()).collect())
}

/// [`rename_to_tuned`] of a schedule of a search, which is always valid.
pub fn rename_found(text: &str, kernel: &str) -> String {
    rename_to_tuned(text, kernel)
        .unwrap_or_else(|diag| crate::bug!("{diag} in a schedule of the search:\n{text}"))
}

fn only_schedule(file: &ast::File) -> Result<&Schedule> {
    match &file.items[..] {
        [Item::Schedule(item)] => Ok(item),
        _ => Err(Box::new(Diag::global("E0605", "the record's text is not one schedule"))),
    }
}

/// Returns the text of a file with schedules that [`rename_to_tuned`] returned.
pub fn insert_schedules(source: &str, schedules: &[String]) -> Result<String> {
    let mut text = source.to_string();
    for schedule in schedules {
        text = insert_schedule(&text, schedule)?;
    }
    Ok(text)
}

fn insert_schedule(source: &str, schedule: &str) -> Result<String> {
    let (file, own) = (parse_file(source, 0)?, parse_file(schedule, 0)?);
    let own = only_schedule(&own)?;
    let target = |item: &Schedule| item.target.as_ref().map(|target| target.text.clone());
    let is_replaced = |old: &Schedule| match (target(old), target(own)) {
        (Some(old), Some(own)) => is_narrower(&old, &own),
        (old, own) => old == own,
    };
    let is_kernel =
        |item: &Item| matches!(item, Item::Kernel(one) if one.name.text == own.kernel.text);
    if !file.items.iter().any(is_kernel) {
        let text = format!("the file has no kernel `{}`", own.kernel.text);
        return Err(Box::new(Diag::global("E0605", text)));
    }
    let old = file.items.iter().filter_map(|item| match item {
        Item::Schedule(old)
            if old.kernel.text == own.kernel.text
                && old.name.as_ref().is_some_and(|name| name.text == NAME)
                && is_replaced(old) =>
        {
            Some(old.span)
        }
        _ => None,
    });
    let old: Vec<Span> = old.collect();
    if let Some((last, replaced)) = old.split_last() {
        let (before, after) = source.split_at(last.start as usize);
        let after = &after[(last.end - last.start) as usize..];
        let mut text = format!("{}{after}", schedule.trim_end());
        let mut end = before.len();
        for span in replaced.iter().rev() {
            let kept = before[span.end as usize..end].trim_start_matches([' ', '\n']);
            text.insert_str(0, kept);
            end = span.start as usize;
        }
        text.insert_str(0, &before[..end]);
        return Ok(text);
    }
    let gap = if source.ends_with('\n') || source.is_empty() { "\n" } else { "\n\n" };
    Ok(format!("{source}{gap}{schedule}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# One.
kernel a(n = 4) {
    input A: float32[n]
    output B[i: n] = A[i]
}
schedule a.tuned for x86-avx2 { B.unroll(i) } # stays
schedule a { B.vectorize(i) }
";

    #[test]
    fn replaces_its_own_schedule_only() {
        let text = "# why\nschedule x.y(t = 2) for x86-avx2 {\n    B.parallel(i)\n}";
        let own = rename_to_tuned(text, "a").unwrap();
        assert_eq!(own, "schedule a.tuned(t = 2) for x86-avx2 {\n    B.parallel(i)\n}\n");
        let changed = insert_schedules(FILE, std::slice::from_ref(&own)).unwrap();
        assert_eq!(
            changed,
            FILE.replace(
                "schedule a.tuned for x86-avx2 { B.unroll(i) }",
                "schedule a.tuned(t = 2) for x86-avx2 {\n    B.parallel(i)\n}"
            )
        );
        assert_eq!(insert_schedules(&changed, &[own]).unwrap(), changed, "once more");
    }

    #[test]
    fn keeps_one_of_several_schedules() {
        let own = rename_to_tuned("schedule a for x86-avx2 { B.parallel(i) }", "a").unwrap();
        let more = "schedule a.tuned for x86-avx2 { B.vectorize(i) }\n# between\n\
                    schedule a.tuned for x86-avx512 { }\n";
        let file = format!("{FILE}{more}{}", own.replace("parallel", "unroll"));
        let left = FILE.replace("schedule a.tuned for x86-avx2 { B.unroll(i) } ", "");
        let between = "# between\nschedule a.tuned for x86-avx512 { }\n";
        assert_eq!(
            insert_schedules(&file, std::slice::from_ref(&own)).unwrap(),
            format!("{left}{between}{own}")
        );
    }

    #[test]
    fn keeps_schedules_of_other_targets() {
        let own = rename_to_tuned("schedule a for x86-avx512 { B.parallel(i) }", "a").unwrap();
        assert_eq!(own, "schedule a.tuned for x86-avx512 { B.parallel(i) }\n");
        assert_eq!(
            insert_schedules(FILE, std::slice::from_ref(&own)).unwrap(),
            format!("{FILE}\n{own}")
        );
        let end = FILE.trim_end();
        assert_eq!(
            insert_schedules(end, std::slice::from_ref(&own)).unwrap(),
            format!("{end}\n\n{own}")
        );
    }

    #[test]
    fn schedules_that_would_be_used_instead_are_replaced() {
        let with = |target: &str| format!("schedule a.tuned for {target} {{ B.unroll(i) }}\n");
        let file = format!("{FILE}{}{}", with("x86-avx512+vnni"), with("x86-avx512+bf16"));
        let vnni = with("x86-avx512+vnni").replace("unroll", "parallel");
        let changed = insert_schedules(&file, std::slice::from_ref(&vnni)).unwrap();
        assert_eq!(changed, format!("{FILE}{vnni}{}", with("x86-avx512+bf16")));
        let all = with("x86-avx512").replace("unroll", "parallel");
        assert_eq!(
            insert_schedules(&file, std::slice::from_ref(&all)).unwrap(),
            format!("{FILE}{all}")
        );
    }

    #[test]
    fn other_texts_and_kernels_are_refused() {
        assert_eq!(rename_to_tuned("", "a").unwrap_err().code, "E0605");
        assert_eq!(rename_to_tuned(FILE, "a").unwrap_err().code, "E0605");
        let other = rename_to_tuned("schedule a { B.parallel(i) }", "b").unwrap();
        assert!(insert_schedules(FILE, &[other]).unwrap_err().message.contains("no kernel `b`"));
    }
}
