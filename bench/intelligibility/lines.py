"""What the voices say: lines of calls without digits, since a recogniser writes numbers in its own way."""

from typing import Final

LINES: Final[dict[str, str]] = {
    "zh": """
您好，这里是客户服务中心。
请问有什么可以帮到您？
您的包裹今天下午会送到家里。
请在提示音之后留下您的姓名和电话。
对不起，您拨打的用户正在通话中。
我们的营业时间是早上九点到晚上六点。
您的预约已经改到下个星期五。
请把身份证和银行卡准备好。
系统正在维护，请稍后再试。
感谢您的耐心等待，马上为您转接。
这张发票会寄到您的邮箱。
您可以在手机上查看订单的状态。
医生今天不在，您愿意换一位吗？
请确认收货地址是否正确。
您的密码已经重新设置好了。
如果需要退货，请保留好包装。
我已经把您的意见记录下来了。
明天有大雨，请带好雨伞。
您乘坐的航班推迟了两个小时。
请到二楼的窗口办理手续。
这款产品目前没有库存。
您的会员资格将在月底到期。
请不要把验证码告诉任何人。
维修师傅会在出发前联系您。
很抱歉给您带来了不便。
您的申请正在审核，请耐心等候。
附近的门店在火车站对面。
请问您是想咨询还是投诉？
我们会在三个工作日之内答复。
水费可以通过网上银行缴纳。
您的座位在靠窗的位置。
请说出您要找的部门名称。
课程从下个月开始报名。
电梯坏了，请走楼梯。
您的贷款申请已经通过了。
请把音量调大一点，我听不清楚。
今天的最后一班车是晚上十点半。
这个问题需要技术人员来处理。
您购买的保险从今天起生效。
房间已经打扫干净，可以入住了。
请按照短信里的步骤操作。
我们没有收到您的付款。
图书馆周末也照常开放。
您的体检报告已经出来了。
请先关闭电源，再打开盖子。
客服代表很快就会接听您的电话。
这次活动只对新用户有效。
您可以选择快递或者到店自取。
请记住您的排队号码。
祝您旅途愉快，再见。
""",
    "en": """
Thank you for calling customer service.
Please hold while I transfer your call.
All of our agents are busy at the moment.
Please leave your name after the tone.
The office is closed today because of the holiday.
We are sorry that you had to wait so long.
Can you please tell me your full name and address?
The next available agent will be with you shortly.
This call may be recorded for quality and training.
Your new password was sent to you by mail.
Please stay on the line for a short survey.
The flight to Boston leaves early in the morning.
We could not find an order in that name.
Your parcel will arrive tomorrow afternoon.
Do not share your password with anybody.
The technician will call you before he leaves.
You can pay by card or in cash.
The repair is covered by the warranty.
We apologize for the inconvenience.
Your request has been approved.
The nearest store is across from the station.
I did not hear you well, could you repeat that?
Say the name of the person you want to talk to.
Your appointment with the doctor has been moved.
We have sent the invoice to your email address.
Would you rather be called in the evening?
Please confirm that the address is right.
The package has already left our warehouse.
Turn the device off before you open the lid.
Your bill is due at the end of the month.
There is a free table beside the window.
Do not hang up, we are connecting you now.
Your account was locked for your own safety.
Please look into your spam folder as well.
The elevator is broken, so take the stairs.
Which city do you live in?
Breakfast is included in your reservation.
We will text you when it is ready.
The course begins after the summer break.
We need a copy of your passport.
The line was cut, please try again.
Could you speak a little more slowly?
This product is out of stock right now.
The library is open on Saturdays, too.
Keep the receipt in case of a complaint.
Your insurance covers the cost of the hospital.
It will rain all over the country tomorrow.
You can change the code in the app.
Thank you for answering our questions.
A colleague will help you right away.
""",
    "es": """
Gracias por llamar al servicio de atención al cliente.
Su pedido llegará mañana por la tarde.
Por favor, espere un momento mientras le atendemos.
No le he oído bien, ¿puede repetirlo?
Esta llamada puede ser grabada para mejorar el servicio.
Diga el nombre de la persona con la que quiere hablar.
Nuestra oficina está cerrada los domingos.
Hemos enviado la factura a su correo electrónico.
Su cita con el médico ha cambiado de hora.
No comparta su contraseña con nadie.
El técnico le llamará antes de salir.
Todos nuestros agentes están ocupados.
Puede pagar con tarjeta o en efectivo.
La reparación está incluida en la garantía.
Lamentamos las molestias que le hemos causado.
Su solicitud ha sido aprobada.
El vuelo sale con dos horas de retraso.
Deje su mensaje después de la señal.
La tienda más cercana está frente a la estación.
Que tenga un buen día y hasta pronto.
¿Prefiere que le llamemos por la mañana?
Para hablar con un agente, siga en línea.
Confirme si la dirección es correcta.
El paquete ya salió del almacén.
Hemos recibido su mensaje y le responderemos pronto.
Apague el aparato antes de abrir la tapa.
La factura de la luz vence a fin de mes.
El restaurante tiene una mesa libre junto a la ventana.
No cuelgue, le estamos transfiriendo.
Su cuenta ha sido bloqueada por seguridad.
La doctora no puede atenderle hoy.
Revise la bandeja de correo no deseado.
El ascensor está averiado, use la escalera.
¿En qué ciudad se encuentra usted?
Su reserva incluye el desayuno.
La garantía cubre cualquier defecto de fábrica.
Le enviaremos un mensaje cuando esté listo.
El curso empieza después de las vacaciones.
Necesitamos una copia de su pasaporte.
La llamada se ha cortado, inténtelo de nuevo.
Hable un poco más despacio, por favor.
Este producto está agotado por el momento.
La biblioteca también abre los sábados.
Guarde el recibo para cualquier reclamación.
Su seguro cubre los gastos del hospital.
El tren a Sevilla sale del andén central.
Mañana lloverá en toda la región.
Puede cambiar la clave desde la aplicación.
Gracias por responder a nuestra encuesta.
Un compañero le ayudará en seguida.
""",
    "fr": """
Merci d'avoir appelé le service client.
Votre commande arrivera demain après-midi.
Veuillez patienter, un conseiller va vous répondre.
Je n'ai pas bien entendu, pouvez-vous répéter ?
Cet appel peut être enregistré.
Dites le nom de la personne que vous cherchez.
Nos bureaux sont fermés le dimanche.
La facture a été envoyée à votre adresse.
Votre rendez-vous chez le médecin a été déplacé.
Ne donnez votre mot de passe à personne.
Le technicien vous appellera avant de partir.
Tous nos conseillers sont en ligne.
Vous pouvez payer par carte ou en espèces.
La réparation est comprise dans la garantie.
Nous sommes désolés pour la gêne occasionnée.
Votre demande a été acceptée.
Le train partira avec une heure de retard.
Laissez votre message après le signal sonore.
Le magasin le plus proche est en face de la gare.
Bonne journée et à bientôt.
Préférez-vous être rappelé dans la matinée ?
Pour parler à un conseiller, restez en ligne.
Confirmez que l'adresse est correcte.
Le colis a déjà quitté notre entrepôt.
Nous avons bien reçu votre message.
Éteignez l'appareil avant d'ouvrir le couvercle.
La facture doit être payée avant la fin du mois.
Il reste une table libre près de la fenêtre.
Ne raccrochez pas, nous transférons votre appel.
Votre compte a été bloqué par sécurité.
Le docteur ne peut pas vous recevoir aujourd'hui.
Regardez aussi dans les courriers indésirables.
L'ascenseur est en panne, prenez l'escalier.
Dans quelle ville habitez-vous ?
Le petit déjeuner est compris dans votre réservation.
La garantie couvre tous les défauts de fabrication.
Vous recevrez un message dès que ce sera prêt.
Les cours commencent après les vacances.
Il nous faut une copie de votre passeport.
La communication a été coupée, essayez encore.
Parlez un peu plus lentement, s'il vous plaît.
Cet article n'est plus disponible pour le moment.
La bibliothèque est ouverte le samedi aussi.
Gardez le reçu en cas de réclamation.
Votre assurance rembourse les frais d'hôpital.
Le train pour Lyon part du quai central.
Demain, il pleuvra dans toute la région.
Vous pouvez changer le code dans l'application.
Merci d'avoir répondu à notre enquête.
Un collègue va vous aider tout de suite.
""",
    "it": """
Grazie per aver chiamato il servizio clienti.
Il suo ordine arriverà domani pomeriggio.
Attenda in linea, un operatore le risponderà presto.
Non ho sentito bene, può ripetere per favore?
Questa chiamata può essere registrata.
Dica il nome della persona che sta cercando.
I nostri uffici sono chiusi la domenica.
Abbiamo inviato la fattura al suo indirizzo.
Il suo appuntamento con il medico è stato spostato.
Non comunichi a nessuno la sua password.
Il tecnico la chiamerà prima di partire.
Tutti i nostri operatori sono occupati.
Può pagare con la carta o in contanti.
La riparazione è compresa nella garanzia.
Ci scusiamo per il disagio.
La sua richiesta è stata accettata.
Il treno partirà con un'ora di ritardo.
Lasci un messaggio dopo il segnale acustico.
Il negozio più vicino è di fronte alla stazione.
Buona giornata e a presto.
Preferisce essere richiamato la mattina?
Per parlare con un operatore, resti in linea.
Confermi se l'indirizzo è corretto.
Il pacco è già partito dal magazzino.
Abbiamo ricevuto il suo messaggio e risponderemo presto.
Spenga l'apparecchio prima di aprire il coperchio.
La bolletta scade alla fine del mese.
C'è un tavolo libero vicino alla finestra.
Non riattacchi, stiamo trasferendo la chiamata.
Il suo conto è stato bloccato per sicurezza.
La dottoressa oggi non può riceverla.
Controlli anche la posta indesiderata.
L'ascensore è guasto, usi le scale.
In quale città si trova?
La colazione è compresa nella prenotazione.
La garanzia copre ogni difetto di fabbrica.
Le manderemo un messaggio quando sarà pronto.
Il corso comincia dopo le vacanze.
Ci serve una copia del suo passaporto.
La linea è caduta, provi di nuovo.
Parli un po' più lentamente, per favore.
Questo prodotto al momento non è disponibile.
La biblioteca è aperta anche il sabato.
Conservi lo scontrino per eventuali reclami.
La sua assicurazione copre le spese dell'ospedale.
Il treno per Bologna parte dal binario centrale.
Domani pioverà in tutta la regione.
Può cambiare il codice con l'applicazione.
Grazie per aver risposto alle nostre domande.
Un collega la aiuterà subito.
""",
    "pt": """
Obrigado por ligar para o serviço de atendimento.
O seu pedido vai chegar amanhã à tarde.
Aguarde na linha, um atendente vai falar com você.
Não ouvi bem, você pode repetir?
Esta ligação pode ser gravada.
Diga o nome da pessoa com quem quer falar.
Nosso escritório fica fechado aos domingos.
Enviamos a fatura para o seu endereço.
A sua consulta com o médico mudou de horário.
Não conte a sua senha para ninguém.
O técnico vai ligar antes de sair.
Todos os nossos atendentes estão ocupados.
Você pode pagar com cartão ou em dinheiro.
O conserto está incluído na garantia.
Pedimos desculpas pelo transtorno.
O seu pedido de crédito foi aprovado.
O voo vai sair com duas horas de atraso.
Deixe a sua mensagem depois do sinal.
A loja mais próxima fica em frente à estação.
Tenha um bom dia e até logo.
Prefere que liguemos de manhã?
Para falar com um atendente, continue na linha.
Confirme se o endereço está correto.
O pacote já saiu do nosso depósito.
Recebemos a sua mensagem e vamos responder logo.
Desligue o aparelho antes de abrir a tampa.
A conta de luz vence no fim do mês.
Há uma mesa livre perto da janela.
Não desligue, estamos transferindo a ligação.
A sua conta foi bloqueada por segurança.
A doutora não pode atender hoje.
Verifique também a caixa de lixo eletrônico.
O elevador está quebrado, use a escada.
Em que cidade você mora?
O café da manhã está incluído na reserva.
A garantia cobre qualquer defeito de fábrica.
Vamos mandar uma mensagem quando estiver pronto.
O curso começa depois das férias.
Precisamos de uma cópia do seu passaporte.
A ligação caiu, tente outra vez.
Fale um pouco mais devagar, por favor.
Este produto não está disponível no momento.
A biblioteca também abre aos sábados.
Guarde o recibo para qualquer reclamação.
O seguro cobre as despesas do hospital.
O trem para o centro sai da plataforma do meio.
Amanhã vai chover em toda a região.
Você pode trocar a senha pelo aplicativo.
Obrigado por responder à nossa pesquisa.
Um colega vai ajudar você agora mesmo.
""",
}


def language_of(tag: str) -> str:
    """The primary subtag of a voice's language, as people write it."""
    primary = tag.split("-", maxsplit=1)[0]
    return "zh" if primary == "cmn" else primary


def lines_of(language: str) -> list[str]:
    """The lines of a language, by its primary subtag."""
    return LINES[language].strip().splitlines()
