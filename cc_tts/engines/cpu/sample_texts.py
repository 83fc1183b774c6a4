"""Each voice says texts of its own language to be measured, since its level and its cost for a character are those of that
language. A Chinese character takes four times as long to say as an English letter.
"""

from collections.abc import Mapping
from typing import Final

_ENGLISH: Final = ("Hello.", "Thank you for calling, how may I help you today?")
SAMPLES: Final[Mapping[str, tuple[str, str]]] = {
    "ar": ("مرحبا.", "شكرا لاتصالكم، كيف يمكنني مساعدتكم اليوم؟"),
    "bg": ("Здравейте.", "Благодарим ви за обаждането, с какво мога да ви помогна днес?"),
    "ca": ("Hola.", "Gràcies per trucar, en què us puc ajudar avui?"),
    "cs": ("Dobrý den.", "Děkujeme za zavolání, jak vám mohu dnes pomoci?"),
    "da": ("Goddag.", "Tak fordi du ringer, hvordan kan jeg hjælpe dig i dag?"),
    "de": ("Guten Tag.", "Vielen Dank für Ihren Anruf, wie kann ich Ihnen heute helfen?"),
    "el": ("Γεια σας.", "Ευχαριστούμε που καλέσατε, πώς μπορώ να σας βοηθήσω σήμερα;"),
    "en": _ENGLISH,
    "es": ("Hola.", "Gracias por llamar, ¿en qué puedo ayudarle hoy?"),
    "fa": ("سلام.", "از تماس شما متشکریم، امروز چگونه می‌توانم به شما کمک کنم؟"),
    "fi": ("Hei.", "Kiitos soitosta, kuinka voin auttaa teitä tänään?"),
    "fr": ("Bonjour.", "Merci de votre appel, comment puis-je vous aider aujourd'hui ?"),
    "hi": ("नमस्ते।", "कॉल करने के लिए धन्यवाद, आज मैं आपकी क्या मदद कर सकता हूँ?"),
    "hu": ("Jó napot.", "Köszönjük a hívását, miben segíthetek ma?"),
    "id": ("Halo.", "Terima kasih telah menelepon, apa yang bisa saya bantu hari ini?"),
    "is": ("Halló.", "Takk fyrir að hringja, hvernig get ég aðstoðað þig í dag?"),
    "it": ("Buongiorno.", "Grazie per aver chiamato, come posso aiutarla oggi?"),
    "ja": ("もしもし。", "お電話ありがとうございます、本日はどのようなご用件でしょうか？"),
    "ka": ("გამარჯობა.", "გმადლობთ რომ დაგვირეკეთ, რით შემიძლია დაგეხმაროთ დღეს?"),
    "kk": ("Сәлеметсіз бе.", "Қоңырау шалғаныңызға рахмет, бүгін сізге қалай көмектесе аламын?"),
    "ko": ("안녕하세요.", "전화해 주셔서 감사합니다, 오늘 무엇을 도와드릴까요?"),
    "lb": ("Moien.", "Merci fir Ären Uruff, wéi kann ech Iech haut hëllefen?"),
    "lv": ("Labdien.", "Paldies par zvanu, kā es varu jums šodien palīdzēt?"),
    "ml": ("നമസ്കാരം.", "വിളിച്ചതിന് നന്ദി, ഇന്ന് ഞാൻ എങ്ങനെ സഹായിക്കണം?"),
    "ne": ("नमस्ते।", "फोन गर्नुभएकोमा धन्यवाद, आज म तपाईंलाई कसरी सहयोग गर्न सक्छु?"),
    "nl": ("Goedendag.", "Bedankt voor uw telefoontje, hoe kan ik u vandaag helpen?"),
    "no": ("God dag.", "Takk for at du ringer, hvordan kan jeg hjelpe deg i dag?"),
    "pl": ("Dzień dobry.", "Dziękujemy za telefon, w czym mogę dzisiaj pomóc?"),
    "pt": ("Olá.", "Obrigado por ligar, em que posso ajudar hoje?"),
    "ro": ("Bună ziua.", "Vă mulțumim pentru apel, cu ce vă pot ajuta astăzi?"),
    "ru": ("Здравствуйте.", "Спасибо за звонок, чем я могу вам помочь сегодня?"),
    "sk": ("Dobrý deň.", "Ďakujeme za zavolanie, ako vám môžem dnes pomôcť?"),
    "sl": ("Dober dan.", "Hvala za klic, kako vam lahko danes pomagam?"),
    "sr": ("Добар дан.", "Хвала на позиву, како могу да вам помогнем данас?"),
    "sv": ("God dag.", "Tack för att du ringer, hur kan jag hjälpa dig i dag?"),
    "sw": ("Habari.", "Asante kwa kupiga simu, naweza kukusaidia vipi leo?"),
    "te": ("నమస్కారం.", "కాల్ చేసినందుకు ధన్యవాదాలు, ఈ రోజు నేను మీకు ఎలా సహాయం చేయగలను?"),
    "tr": ("Merhaba.", "Aradığınız için teşekkürler, bugün size nasıl yardımcı olabilirim?"),
    "uk": ("Добрий день.", "Дякуємо за дзвінок, чим я можу вам допомогти сьогодні?"),
    "ur": ("السلام علیکم۔", "کال کرنے کا شکریہ، آج میں آپ کی کیا مدد کر سکتا ہوں؟"),
    "vi": ("Xin chào.", "Cảm ơn quý khách đã gọi, hôm nay tôi có thể giúp gì cho quý khách?"),
    "zh": ("您好。", "感谢您的来电，请问今天有什么可以帮您？"),
}
"""The texts by the primary subtag of a language: a greeting, which warms the voice up, and a sentence, which is measured."""
_ALIASES: Final[Mapping[str, str]] = {"cmn": "zh", "yue": "zh", "nb": "no", "nn": "no"}


def sample_of(language: str) -> tuple[str, str]:
    """The texts for a voice of this BCP 47 language; English ones where none are known."""
    primary = language.lower().replace("_", "-").partition("-")[0]
    return SAMPLES.get(_ALIASES.get(primary, primary), _ENGLISH)
