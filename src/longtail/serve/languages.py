"""Which language a text is in, by its small words. Good enough to send a text to the right project."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Of running text about four words in ten are among a language's most frequent small words.
_USUAL = 0.4

WORDS = {
    code: frozenset(words.split())
    for code, words in {
        "da": "og i at det er en til af på for med den de ikke som der har et han jeg fra var vi kan men om ved "
        "så eller hun sig skal vil blev være efter også nu hvor hvad mere ind ud over under",
        "de": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an "
        "werden aus er hat dass sie nach wird bei einer um am sind noch wie einem über einen so zum war "
        "haben nur oder aber vor zur bis",
        "en": "the of and to in a is that for it as was with be by on not he his but at are this have from or "
        "had an they which one you were all their there been has if more when will would who so no we "
        "what about into than its",
        "es": "de la que el en y a los se del las un por con no una su para es al lo como más o pero sus le ha "
        "me si sin sobre este ya entre cuando todo esta ser son dos también fue había era muy hasta desde",
        "et": "ja on ei et see ta oli mis kui ka oma nii aga siis kes selle mida või ning ma pole veel seda "
        "olema tema nende meie kus juba ainult mitte välja üle pärast enne kuid koos",
        "fi": "ja on ei että se oli hän mutta ovat kun niin myös joka tai en olla kuin hänen ole ne mitä sen "
        "jos nyt siitä tämä vain sitä jo sekä mukaan tässä joita voi jotka vielä minä sinä me he ollut "
        "siis kanssa",
        "fr": "de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se ce il sont "
        "avec son ou aux mais nous cette ses comme on elle leur été sa fait être deux même ces ont si y",
        "it": "di e il la che in a per un è del non una i le con si da come al dei sono nel ma più alla anche "
        "della gli lo se o ha questo su loro ho mi ci quando essere suo sua delle fra tra tutto dopo",
        "nb": "og i det er på en til av for med som at den de ikke har et han jeg fra var vi kan men om så "
        "eller hun seg skal vil ble være etter også nå hvor hva mer inn ut over under ved",
        "nl": "de het een en van in is dat op te zijn voor met die niet aan er om ook als dan maar bij nog uit "
        "naar heeft ik door wordt werd over zij hij deze dit wel geen kan meer hun al was worden tot",
        "pl": "i w na z do nie się że to jest o jak za po od przez dla co a ale tak czy już był tego być może "
        "tylko są jego jej go ich które który także oraz przy bardzo",
        "pt": "de a o que e do da em um para é com não uma os no se na por mais as dos como mas foi ao ele das "
        "tem à seu sua ou ser quando muito há nos já está eu também só pelo pela até isso",
        "sv": "och i att det som en på är av för med den till inte har de ett om han var men jag sig från vi så "
        "kan man när år säger hon under också efter eller nu sin där vid mot ska skulle kommer ut får "
        "finns vara hade alla",
    }.items()
}


def detected(text: str, codes: Sequence[str]) -> list[tuple[str | None, float]]:
    """Languages and scores from 0 to 1, best first; None stands for all others."""
    words = re.findall(r"[^\W\d_]+", text[:10_000].lower())
    share = {code: sum(word in WORDS[code] for word in words) / max(len(words), 1) for code in dict.fromkeys(codes)}
    scores: list[tuple[str | None, float]] = [
        (code, round(min(1.0, found / _USUAL), 4)) for code, found in share.items()
    ]
    rest = round(1 - max(score for _, score in scores), 4)
    return sorted([*scores, (None, rest)], key=lambda one: -one[1])
