"""The table of the docs matches the tests: every claim has a test, and nothing is omitted."""

from __future__ import annotations

from executables.conformance import CONTRACT, DIFFERENT, MISSING, PAGE, contract_fields, marked_fields, render_page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(), "run scripts/conformance-table.py"


def test_a_mark_names_a_field_of_the_contract() -> None:
    unknown = {field: tests for field, tests in marked_fields().items() if field not in contract_fields()}
    assert not unknown, f"tests show fields that tests/support/executables/conformance.py does not know: {unknown}"


def test_a_field_is_shown_by_a_test_or_listed_with_its_reason() -> None:
    tested = marked_fields()
    lost = [field for field in contract_fields() if field not in tested and field not in MISSING]
    assert not lost, f"no test shows these, and MISSING does not say why: {lost}"


def test_fields_listed_as_missing_have_no_test() -> None:
    assert not [field for field in MISSING if field in marked_fields()]
    assert all(reason.strip() for reason in (*MISSING.values(), *DIFFERENT.values()))


def test_exceptions_are_part_of_the_contract() -> None:
    assert not [field for field in (*DIFFERENT, *MISSING) if field not in contract_fields()]


def test_a_contract_field_is_unique() -> None:
    for protocol, parts in CONTRACT.items():
        named = [(part.event, field) for part in parts for _, field in part.fields]
        assert len(named) == len(set(named)), protocol
