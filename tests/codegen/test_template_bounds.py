"""Templates that would not end, or make texts of any size, are errors at once, with their place."""

import time

import pytest

from mlagen.codegen import template_bounds
from mlagen.codegen.target import templates_for
from mlagen.errors import TemplateError

ITSELF = "it calls, includes or imports itself without an end"
DOUBLED = "{% set ns = namespace(x='ab') %}{% for i in range(60) %}"
ENDLESS = {
    "includes itself": ("{% include 'x/a.s.j2' %}", "more than 200 templates"),
    "includes one that includes it": ("{% include 'x/b.s.j2' %}", "more than 200 templates"),
    "extends itself": ("{% extends 'x/a.s.j2' %}", "more than 200 templates"),
    # which bound comes first depends on how deep the stack of the caller is
    "imports itself": ("{% from 'x/a.s.j2' import y %}", (ITSELF, "more than 200 templates")),
    "a macro of itself": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", ITSELF),
    "a block of itself": ("{% block a %}{{ self.a() }}{% endblock %}", ITSELF),
    "a loop of itself": ("{% for i in [1] recursive %}{{ loop([i]) }}{% endfor %}", ITSELF),
    "a macro twice of itself": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
        "{{ f(90) }}", "it goes on after 20000 rounds"),
    "a long range": ("{% for i in range(1000000000) %}s_nop 0\n{% endfor %}",
                     "range(1000000000) has 1000000000 numbers, more than 1000000"),
    "a range backwards": ("{{ range(10**12, 0, -1)|list }}", "numbers, more than"),
    "1e9": ("{% for i in range(1e9) %}{% endfor %}", "'float' object"),
    "a loop in a loop": (
        "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
        "it goes on after 20000 rounds"),
    "a list that grows": ("{% set l = [1] %}{% for i in l if l.append(1) %}{% endfor %}",
                          "it goes on after 20000 rounds"),
    "a long text": ("s_nop {{ 'x' * 10**10 }}", "a product has 10000000000 items"),
    "a long list": ("s_nop {{ 10**10 * [0] }}", "a product has 10000000000 items"),
    "a large number": ("s_nop {{ 10 ** (10 ** 8) }}", "a power has 400000000 bits"),
    "a doubled text": (DOUBLED + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}", "what ~ joins"),
    "a doubled sum": (DOUBLED + "{% set ns.x = ns.x + ns.x %}{% endfor %}", "a sum has"),
    "a doubled output": (
        DOUBLED + "{% set t %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = t %}{% endfor %}",
        "what it renders to has"),
    "a wide center": ("{{ 'x'|center(10**10) }}", "the filter center has 10000000001 char"),
    "a wide method": ("{{ 'x'.rjust(10**10) }}", ".rjust has 10000000001 characters"),
    "a wide format": ("{{ '%999999999d' % 1 }}", "what % formats has 1000000012"),
    "a format's width": ("{{ '%*d' % (10**9, 1) }}", "what % formats has 1000000"),
    "a format's digits": ("{{ '%.999999999f' % 1 }}", "what % formats has"),
    "a wide format filter": ("{{ '%999999999s'|format(1) }}", "the filter format has"),
    "a wide format method": ("{{ '{:999999999}'.format(1) }}", ".format has"),
    "a width that is given": ("{{ '{:{}}'.format(1, 10**9) }}", ".format has"),
    "a format of long parts": (
        "{% set a = 'x' * 10**5 %}{{ ('%(a)s' * 10**4) % {'a': a} }}", "what % formats has"),
    "a deep indent": ("{{ ('a\\n' * 10**5)|indent(10**5) }}", "the filter indent has"),
    "an indent of text": ("{{ ('a\\n' * 10**5)|indent('x' * 10**5) }}", "the filter indent has"),
    "a replacement": ("{{ ('a' * 10**5)|replace('a', 'b' * 10**5) }}", "the filter replace has"),
    "a replacement by name": (
        "{{ ('a' * 10**5).replace('a', 'b' * 10**5) }}", ".replace has"),
    "a joint": ("{{ range(10**5)|list|join('x' * 10**5) }}", "the filter join has"),
    "a joint by name": ("{{ ('x' * 10**5).join(['a'] * 10**5) }}", ".join has"),
    "a filled batch": ("{{ [1]|batch(10**10, 0)|list }}", "the filter batch has"),
    "many slices": ("{{ [1]|slice(10**10)|list }}", "the filter slice has"),
    "wide tabs": ("{{ '\\t'.expandtabs(10**10) }}", ".expandtabs has"),
    "a wide wrap": ("{{ ('a ' * 10**5)|wordwrap(1, wrapstring='x' * 10**5) }}", "wordwrap has"),
    "wide JSON": ("{{ ([1] * 10**5)|tojson(indent=10**5) }}", "the filter tojson has"),
    "a list of one list": ("{{ [[0] * 10**6] * 10**6 }}", "what it renders to has 20000022"),
    "its text": ("{{ ([[0] * 10**6] * 10**6)|string|length }}", "the filter string has"),
    "a sum of lists": ("{{ ([[0] * 1000] * 10**5)|sum(start=[])|length }}", "the filter sum has"),
    "many wide ones": ("{{ range(10**5)|map('center', 10**5)|list|length }}",
                       "what filters, methods and formats make has"),
    "by another name": ("{{ 'x'.__mul__(10**10) }}", "a template does not call __mul__"),
}  # fmt: skip


def test_ordinary_texts_are_formatted(tmp_path):
    text = (
        "{{ 'x'|center(5) }}|{{ '%3d' % 7 }}|{{ '%s-%s' % (1, 'a') }}|{{ '%02x'|format(10) }}|"
        "{{ '{:>4}'.format('b') }}|{{ [1, 2]|join(', ') }}|{{ 'a.b'.replace('.', '_') }}|"
        "{{ 9 % 4 }}|{{ [1, 2, 3]|batch(2)|list }}|{{ [1, 2]|sum }}|{{ 'v'.zfill(3) }}|"
        "{{ ', '.join(['c']) }}"
    )
    assert rendered(tmp_path, text) == ["  x  |  7|1-a|0a|   b|1, 2|a_b|1|[[1, 2], [3]]|3|00v|c"]


def rendered(folder, text):
    place = folder / "gfx950" / "x"
    place.mkdir(parents=True)
    (place / "a.s.j2").write_text(text)
    (place / "b.s.j2").write_text("{% include 'x/a.s.j2' %}")
    return [
        line for *_, line in templates_for("gfx950", folder).render("x/a.s.j2", {}, "an operation")
    ]


@pytest.mark.parametrize("name", ENDLESS)
def test_it_is_an_error_at_once(tmp_path, monkeypatch, name):
    monkeypatch.setattr(template_bounds, "STEPS", 20_000)
    text, says = ENDLESS[name]
    started = time.process_time()
    with pytest.raises(TemplateError) as caught:
        rendered(tmp_path, "s_nop 0\n" + text)
    assert any(word in caught.value.message for word in ([says] if isinstance(says, str) else says))
    assert caught.value.message.startswith("gfx950/x/")
    assert caught.value.message.endswith("(an operation)")
    assert time.process_time() - started < 5


def test_what_ends_is_rendered(tmp_path):
    """Loops, macros, callers, products and sums give what jinja2 gives."""
    text = (
        "{% macro twice(n) %}{{ n }}{{ caller() }}{{ n }}{% endmacro %}\n"
        "{% for i in range(6, 0, -2) if i > 2 %}{{ loop.index }} {{ i * 3 + 2 ** 2 }}\n{% endfor %}"
        "{% call twice('a' ~ 1) %}-{% endcall %} {{ 'ab' * 2 }} {{ [1] + [2] }} {{ 2 ** -1 }}\n"
    )
    assert rendered(tmp_path, text) == ["1 22", "2 16", "a1-a1 abab [1, 2] 0.5"]


def test_bounds_are_of_one_rendering(tmp_path, monkeypatch):
    monkeypatch.setattr(template_bounds, "STEPS", 20)
    assert rendered(tmp_path, "{% for i in range(15) %}\n{% endfor %}") == []
    again = templates_for("gfx950", tmp_path)
    for _ in range(3):
        assert again.render("x/a.s.j2", {}, "an operation") == []
